// The lift of tests/simulation/hopsan/level.toml in Hopsan's core, for studies_beside_hopsan.py.
//
// hopsan_lift COMMAND STEP DURATION RUNS: COMMAND is a file of times and values, STEP and DURATION are in s. Prints the
// pressures of A and B, Pa, at each millisecond of one run, and the CPU time, ms, of each of RUNS more with other masses.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "ComponentEssentials.h"
#include "ComponentSystem.h"
#include "CoreUtilities/ClassFactory.hpp"
#include "CoreUtilities/NumHopHelper.h"
#include "HopsanEssentials.h"
#include "defaultComponentLibraryInternal.h"
#include "Hydraulic/LinearActuators/HydraulicCylinderC.hpp"
#include "Hydraulic/Sources&Sinks/HydraulicPressureSourceC.hpp"
#include "Hydraulic/Sources&Sinks/HydraulicTankC.hpp"
#include "Hydraulic/Valves/FlowControlValves/Hydraulic43Valve.hpp"
#include "Mechanic/Linear/MechanicTranslationalCSource.hpp"
#include "Mechanic/Linear/MechanicTranslationalMass.hpp"

using namespace hopsan;

static std::vector<double> times, values;

// The command: straight lines between points.
class Polygon : public ComponentSignal
{
    double *out;
    size_t at;

public:
    static Component *Creator() { return new Polygon(); }

    void configure() { addOutputVariable("out", "", "", 0.0, &out); }

    void initialize() { at = 0; }

    void simulateOneTimestep()
    {
        while (at + 2 < times.size() && mTime >= times[at + 1]) {
            ++at;
        }
        double share = (mTime - times[at]) / (times[at + 1] - times[at]);
        share = share > 1.0 ? 1.0 : share;
        *out = values[at] + share * (values[at + 1] - values[at]);
    }
};

// Called by the core, which is compiled with HOPSAN_INTERNALDEFAULTCOMPONENTS.
void hopsan::register_default_components(ComponentFactory *factory)
{
    factory->registerCreatorFunction("Polygon", Polygon::Creator);
    factory->registerCreatorFunction("HydraulicPressureSourceC", HydraulicPressureSourceC::Creator);
    factory->registerCreatorFunction("HydraulicTankC", HydraulicTankC::Creator);
    factory->registerCreatorFunction("Hydraulic43Valve", Hydraulic43Valve::Creator);
    factory->registerCreatorFunction("HydraulicCylinderC", HydraulicCylinderC::Creator);
    factory->registerCreatorFunction("MechanicTranslationalMass", MechanicTranslationalMass::Creator);
    factory->registerCreatorFunction("MechanicTranslationalCSource", MechanicTranslationalCSource::Creator);
}

// Expressions in parameters, which need another library, do not occur here.
NumHopHelper::NumHopHelper() : mpPrivate(nullptr) {}
NumHopHelper::~NumHopHelper() {}
void NumHopHelper::setSystem(ComponentSystem *) {}
void NumHopHelper::setComponent(Component *) {}
bool NumHopHelper::evalNumHopScript(const HString &, double &, bool, HString &) { return false; }
HVector<HString> NumHopHelper::extractNamedValues(const HString &) { return {}; }
HString NumHopHelper::replaceNamedValue(const HString &expression, const HString &, const HString &) { return expression; }

static HopsanEssentials core;

static Component *add(ComponentSystem *system, const char *type, const char *name)
{
    Component *made = core.createComponent(type);
    made->setName(name);
    system->addComponent(made);
    return made;
}

static void set(Component *component, const char *name, double value)
{
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", value);
    if (!component->setParameterValue(name, text)) {
        std::fprintf(stderr, "no parameter %s\n", name);
        std::exit(1);
    }
}

static double cpu_ms()
{
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * now.tv_sec + 1e-6 * now.tv_nsec;
}

int main(int, char **given)
{
    std::FILE *file = std::fopen(given[1], "r");
    double step = std::atof(given[2]), duration = std::atof(given[3]), t, u;
    int runs = std::atoi(given[4]);
    while (std::fscanf(file, "%lf %lf", &t, &u) == 2) {
        times.push_back(t);
        values.push_back(u);
    }
    std::fclose(file);

    const double pi = 3.141592653589793, area = 0.25 * pi * 0.04 * 0.04, ring = area - 0.25 * pi * 0.025 * 0.025;
    const double coefficient = 20.0 / 6e4 / std::sqrt(35e5), c_q = 0.67, rho = 870.0;
    ComponentSystem *system = core.createComponentSystem();
    Component *command = add(system, "Polygon", "command"), *supply = add(system, "HydraulicPressureSourceC", "supply");
    Component *tank = add(system, "HydraulicTankC", "tank"), *valve = add(system, "Hydraulic43Valve", "valve");
    Component *cylinder = add(system, "HydraulicCylinderC", "cylinder");
    Component *mass = add(system, "MechanicTranslationalMass", "mass");
    Component *end = add(system, "MechanicTranslationalCSource", "end");
    set(supply, "p#Value", 200e5);
    set(tank, "p", 2e5);
    for (const char *name : {"x_pa#Value", "x_pb#Value", "x_at#Value", "x_bt#Value"}) {
        set(valve, name, 0.0);
    }
    set(valve, "x_vmax#Value", 1.0);
    set(valve, "C_q#Value", c_q);
    set(valve, "rho#Value", rho);
    set(valve, "d#Value", coefficient / (c_q * pi * std::sqrt(2.0 / rho)));
    set(valve, "omega_h", 2.0 * pi * 80.0);
    set(valve, "delta_h", 0.6);
    set(cylinder, "A_1#Value", area);
    set(cylinder, "A_2#Value", ring);
    set(cylinder, "s_l#Value", 0.5);
    set(cylinder, "V_1#Value", 0.3e-3);
    set(cylinder, "V_2#Value", 0.3e-3);
    set(cylinder, "B_p#Value", 500.0);
    set(cylinder, "Beta_e#Value", 1.5e9);
    set(cylinder, "c_leak#Value", 0.0);
    cylinder->setParameterValue("use_sl", "false");
    set(mass, "m", 60.0);
    set(mass, "B#Value", 0.0);
    const char *ends[][4] = {{"command", "out", "valve", "in"},   {"supply", "P1", "valve", "PP"},
                             {"tank", "P1", "valve", "PT"},       {"valve", "PA", "cylinder", "P1"},
                             {"valve", "PB", "cylinder", "P2"},   {"cylinder", "P3", "mass", "P1"},
                             {"mass", "P2", "end", "P1"}};
    for (auto &each : ends) {
        if (!system->connect(each[0], each[1], each[2], each[3])) {
            std::fprintf(stderr, "not connected: %s %s\n", each[0], each[1]);
            return 1;
        }
    }
    set(cylinder, "P1#Pressure", 60e5);
    set(cylinder, "P2#Pressure", 60e5 * area / ring);
    set(cylinder, "P3#Position", -0.2);
    set(end, "P1#Position", 0.2);
    system->setDesiredTimestep(step);
    system->disableLog();
    for (int run = 0; run <= runs; ++run) {
        double begun = cpu_ms();
        set(mass, "m", 60.0 + run);
        if (!system->checkModelBeforeSimulation() || !system->initialize(0.0, duration)) {
            std::fprintf(stderr, "not initialised\n");
            return 1;
        }
        if (run == 0) {
            for (int ms = 1; ms <= 1e3 * duration + 0.5; ++ms) {
                system->simulate(1e-3 * ms);
                std::printf("%.12g %.12g %.12g\n", valve->getPort("PA")->readNode(NodeHydraulic::Pressure),
                            valve->getPort("PB")->readNode(NodeHydraulic::Pressure),
                            mass->getPort("P2")->readNode(NodeMechanic::Position));
            }
        } else {
            system->simulate(duration);
            std::printf("%.6g\n", cpu_ms() - begun);
        }
        system->finalize();
    }
    HString message, type, tag;
    while (core.checkMessage() > 0) {
        core.getMessage(message, type, tag);
        if (type == "error" || type == "fatal") {
            std::fprintf(stderr, "%s\n", message.c_str());
        }
    }
    return 0;
}
