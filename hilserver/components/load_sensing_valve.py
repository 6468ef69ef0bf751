"""Load-sensing directional valve."""

from __future__ import annotations

from pydantic import Field

from hilserver.components.base import Fluid, Parameters, kernel
from hilserver.components.orifice import FlowAtDrop
from hilserver.components.shared.four_way import CentredValve
from hilserver.components.shared.spool import with_spool
from hilserver.numerics.flow import root_of_drop
from hilserver.numerics.shape import step
from hilserver.numerics.valve import four_way_flow, leakage_fade
from hilserver.units import Number, Volume


@with_spool
class LoadSensingValve(CentredValve):
    r"""Load-sensing valve: a ``directional_valve_4_3`` that reports the pressure of the supplied port at LS.

    .. math:: Q_{A,LS} = C_s\,a\;g(p_A - p_{LS}), \quad Q_{B,LS} = C_s\,b\;g(p_B - p_{LS}), \quad
       Q_{LS,T} = C_s\,(1 - a - b)\;g(p_{LS} - p_T)

    a is a STEP of the spool's travel U, b of -U: 0 up to half of ``ls_travel`` (LS is vented to T: a load-sensing pump
    goes to stand-by), 1 above ``ls_travel`` (LS is connected to A, or to B). So the pressure of the port that returns
    oil, which an overrunning load may raise above the supplied one, has no effect. LS falls with the load the same way.

    **LS is a hydraulic port**, so that it connects straight to the LS port of a pump or pressure compensator, or
    through a shuttle valve to that of other sections; a signal could be neither throttled nor compared by a shuttle.
    It is not a stiff node: the valve gives the node its own line volume, C_LS = V_LS/B_o, and fills it through its own
    orifice. With the defaults the time constant near rest is (2/3)·C_LS·sqrt(p_tr)/C_s = 0.6 ms and 200 bar are reached
    in some 20 ms; a longer LS line is a larger ``ls_volume``. LS takes its oil from the working port, and none once it
    is filled. Sections that share one LS node vent each other: give each its own node and join them by shuttle valves.

    An individual pressure compensator is a separate component upstream of P, with the same LS node.
    Edges, centre, motion and leakage: as in ``directional_valve_4_3``. Source: theory §3; [Linjama].
    """

    type_name = "load_sensing_valve"
    hydraulic = ("P", "T", "A", "B", "LS")

    ls_orifice: FlowAtDrop = Field(
        default={"flow": "1 l/min", "drop": "5 bar"}, description="drillings to LS and from LS to T"
    )
    ls_volume: Volume = Field(default="0.1 l", gt=0, description="volume of the LS line, V_LS; 3 m of 6 mm hold 0.1 l")
    ls_travel: Number = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="spool travel at which LS has changed over from T to the working port; it begins at half of it",
    )

    def parameters(self, fluid: Fluid) -> Parameters:
        return {
            **self.four_way_parameters(),
            **self.spool_parameters(),
            "C_s": self.ls_orifice.coefficient(self.transition_pressure),
            "U_s": self.ls_travel,
            "V_LS": self.ls_volume,
            "B_o": fluid.bulk_modulus,
        }


@kernel(LoadSensingValve)
def load_sensing_valve(
    p_P,
    p_T,
    p_A,
    p_B,
    p_LS,
    U,
    table_PA,
    table_PB,
    table_AT,
    table_BT,
    table_PT,
    C_v,
    C_leak,
    U_leak,
    p_tr,
    C_s,
    U_s,
    V_LS,
    B_o,
):
    leak = C_leak * leakage_fade(abs(U), U_leak)
    q_P, q_T, q_A, q_B = four_way_flow(
        U, p_P, p_T, p_A, p_B, table_PA, table_PB, table_AT, table_BT, table_PT, C_v, leak, p_tr
    )
    a, b = step(U, 0.5 * U_s, 0.0, U_s, 1.0), step(-U, 0.5 * U_s, 0.0, U_s, 1.0)
    q_A_LS = C_s * a * root_of_drop(p_A - p_LS, p_tr)
    q_B_LS = C_s * b * root_of_drop(p_B - p_LS, p_tr)
    q_LS_T = C_s * (1.0 - a - b) * root_of_drop(p_LS - p_T, p_tr)
    q_T += q_LS_T
    q_A -= q_A_LS
    q_B -= q_B_LS
    q_LS = q_A_LS + q_B_LS - q_LS_T
    C_LS = V_LS / B_o
    return q_P, q_T, q_A, q_B, q_LS, C_LS
