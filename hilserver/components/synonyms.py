"""Other names of the component types: what catalogues, drawings and other programs call them."""

from __future__ import annotations

from collections.abc import Collection

from hilserver.errors import did_you_mean

SYNONYMS: dict[str, tuple[str, ...]] = {
    "accumulator": ("bladder", "diaphragm", "hydropneumatic", "gas spring"),
    "check_valve": ("non-return valve", "one-way valve", "NRV", "suction valve", "anti-cavitation valve", "poppet"),
    "comparator": ("switch", "relay", "hysteresis", "pressure switch", "limit switch"),
    "counterbalance_valve": ("overcentre valve", "over-centre valve", "load holding valve", "motion control", "CBV"),
    "crane_arm": ("boom", "jib", "lever"),
    "cylinder": ("ram", "jack", "actuator", "differential cylinder", "double-acting"),
    "damper": ("dashpot", "viscous damper"),
    "delay": ("dead time", "transport delay"),
    "directional_valve_2_2": ("on/off valve", "solenoid valve", "seat valve", "shut-off valve", "2/2-way", "DCV"),
    "directional_valve_3_2": ("solenoid valve", "3/2-way", "DCV"),
    "directional_valve_4_2": ("solenoid valve", "4/2-way", "DCV"),
    "directional_valve_4_3": ("solenoid valve", "spool valve", "main control valve", "4/3-way", "DCV"),
    "double_rod_cylinder": ("through-rod cylinder", "symmetric cylinder", "equal-area", "steering cylinder"),
    "elastic_coupling": ("stiffness matrix", "condensed stiffness", "negative stiffness", "structural coupling"),
    "end_stop": ("bumper", "cushion", "hard stop", "limit of travel"),
    "fixed_pump": ("gear pump", "constant pump", "fixed displacement", "vane pump"),
    "flow_control_valve_2_way": ("compensated flow control", "pressure-compensated throttle", "2-way flow regulator"),
    "flow_control_valve_3_way": ("bypass flow regulator", "priority valve", "flow divider"),
    "flow_sensor": ("flow meter", "turbine"),
    "flow_source": ("ideal pump",),
    "force_source": ("load cell", "external force"),
    "friction": ("Stribeck", "stick-slip", "Coulomb", "LuGre"),
    "gain": ("scale", "amplifier", "offset"),
    "hose": ("flexible line",),
    "hydraulic_motor": ("gerotor", "orbital motor", "piston motor", "swing motor", "winch motor", "displacement unit"),
    "inertia": ("flywheel", "rotor"),
    "joystick": ("lever", "deadband", "pedal", "remote control"),
    "lag": ("low-pass", "first order", "filter", "PT1"),
    "laminar_restrictor": ("capillary", "leakage gap", "filter element", "linear resistance"),
    "limiter": ("saturation", "clamp"),
    "load_mass": ("mass", "weight"),
    "load_sensing_pump": ("LS pump", "LS", "flow-compensated pump", "pressure-flow controller", "DFR"),
    "load_sensing_valve": ("LS valve", "LS", "mobile valve", "proportional directional valve", "PVG"),
    "orifice": ("throttle", "nozzle", "restrictor", "needle valve", "jet"),
    "pilot_operated_check_valve": ("PO check", "lock valve", "load holding valve", "pilot-to-open"),
    "pipe": ("tube", "rigid line"),
    "position_actuator": ("servo actuator", "servohydraulic actuator", "shake table", "position loop", "MTS"),
    "position_sensor": ("LVDT", "encoder", "transducer"),
    "position_source": ("testing machine", "prescribed motion"),
    "power_limited_pump": ("torque limiter", "horsepower control", "constant power", "LR", "LRDS"),
    "pressure_compensated_pump": ("constant-pressure pump", "pressure-controlled", "PC pump", "variable pump", "DR"),
    "pressure_compensator": ("pressure balance", "hydrostat", "individual pressure compensator", "IPC"),
    "pressure_sensor": ("pressure transducer", "pressure transmitter"),
    "pressure_source": ("constant supply", "ideal supply"),
    "product": ("multiply", "multiplication"),
    "proportional_valve_4_3": ("PDCV", "proportional directional valve", "4/3-way", "DCV", "main valve"),
    "rack_and_pinion": ("rotary actuator", "swing drive", "helical actuator"),
    "reducing_valve": ("pressure reducer", "PRV", "pressure reducing valve", "pilot pressure", "relieving"),
    "ramp_signal": ("slope",),
    "relief_valve": ("PRV", "pressure limiting valve", "safety valve", "port relief", "crossover relief", "DBV"),
    "sequence_valve": ("pressure sequence", "preload valve"),
    "servo_valve": ("nozzle flapper", "direct drive valve", "DDV", "high-response valve", "servovalve"),
    "shaft_load": ("brake", "torque", "conveyor", "fan"),
    "shuttle_valve": ("OR valve", "double check valve", "LS shuttle", "changeover valve"),
    "sine_signal": ("harmonic", "oscillator"),
    "single_acting_cylinder": ("plunger", "ram", "spring return"),
    "speed_source": ("electric motor", "diesel engine", "prime mover"),
    "spring": ("elasticity", "stiffness"),
    "static_relief_valve": ("pressure limiting valve", "PRV", "p-Q curve"),
    "step_signal": ("jump",),
    "sum": ("add", "difference", "subtract"),
    "sweep_signal": ("chirp", "frequency response"),
    "table_signal": ("time history", "playback", "profile", "lookup"),
    "tank": ("reservoir", "return", "sump"),
    "throttle_check_valve": ("one-way restrictor", "one-way flow control", "meter-out"),
    "torque_source": ("external torque",),
    "unloading_valve": ("unloader", "accumulator charging valve"),
    "velocity_source": ("prescribed speed",),
    "volume": ("line", "manifold", "chamber", "dead volume", "capacity"),
}
"""Component type -> its other names. A name may belong to several types."""

MOST = 6
"""Number of types beyond which a word does not tell which one is meant."""


def meant_type(named: str, types: Collection[str]) -> str:
    """A hint for a component type that does not exist: the types that are called so, otherwise one with a similar name.

    >>> meant_type("overcenter", SYNONYMS), meant_type("pressure_relief_valve", ["relief_valve", "orifice"])
    (' Did you mean counterbalance_valve?', ' Did you mean relief_valve?')
    """
    names = {kind: [_spoken(name) for name in (kind, *SYNONYMS.get(kind, ()))] for kind in types}
    for called in (_same, _contains, _is_contained, _is_part):
        found = [kind for kind in sorted(names) if any(called(_spoken(named), name) for name in names[kind])]
        if 0 < len(found) <= MOST:
            return f" Did you mean {' or '.join(found)}?"
    return did_you_mean(named, types)


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("-", " ").casefold().replace("center", "centre").replace("hydraulic ", "")


def _telling(name: str) -> set[str]:
    """The words of a name that tell types apart."""
    return set(name.split()) - {"valve", "way"}


def _same(given: str, name: str) -> bool:
    return given.replace(" ", "") == name.replace(" ", "")


def _contains(given: str, name: str) -> bool:
    """Whether a name has all words of what was given: ``overcentre``, overcentre valve."""
    return bool(_telling(given)) and _telling(given) <= _telling(name)


def _is_contained(given: str, name: str) -> bool:
    """Whether what was given has all words of a name of several: ``pressure_relief_valve``, relief valve."""
    return " " in name and set(name.split()) <= set(given.split())


def _is_part(given: str, name: str) -> bool:
    """Whether a name has what was given within a word: ``cyl``, cylinder."""
    return len(given) > 2 and given != "valve" and given in name
