"""Other names of keys: what datasheets and other programs call the values."""

from __future__ import annotations

_BY_KEY = {
    "bore": "piston_diameter piston cylinder_diameter diameter",
    "rod_diameter": "rod rod_size diameter",
    "inner_diameter": "id inside_diameter internal_diameter bore diameter",
    "stroke": "travel stroke_length max_travel",
    "mass": "weight load",
    "moving_mass": "mass piston_mass",
    "nominal_flow": "rated_flow flow_rate flow q qn q_nom q_n q_nominal kv cv",
    "drop": "pressure_drop dp delta_p",
    "flow": "flow_rate rated_flow q",
    "max_flow": "flow flow_rate delivery q_max",
    "opening_pressure": "set_pressure setting pressure_setting relief_pressure cracking_pressure pressure",
    "set_pressure": "setting pressure_setting compensator_pressure cut_off_pressure pressure setpoint",
    "cracking_pressure": "crack_pressure opening_pressure spring_pressure",
    "override": "characteristic pq_curve accumulation",
    "f45": "bandwidth cut_off_frequency corner_frequency f_45 natural_frequency eigenfrequency",
    "f90": "bandwidth natural_frequency eigenfrequency frequency f_90 f0 omega",
    "damping": "damping_ratio d zeta",
    "overlap": "lap deadband dead_band dead_zone",
    "null": "null_offset offset bias trim",
    "null_offset": "null offset bias trim",
    "opening_rate": "slew slew_rate opening_time stroke_time",
    "slew": "slew_rate rate opening_rate",
    "response_time": "time_constant rise_time settling_time",
    "precharge": "precharge_pressure gas_pressure p0 p_0",
    "gas_volume": "volume nominal_volume size capacity v0 v_0",
    "displacement": "vg v_g displacement_volume swept_volume geometric_displacement",
    "speed": "rpm n shaft_speed",
    "pilot_ratio": "ratio area_ratio pilot",
    "stiffness": "spring_rate spring_constant c k",
    "wall_thickness": "thickness wall s",
    "elastic_modulus": "youngs_modulus e_modulus modulus",
    "bulk_modulus": "modulus compressibility k",
    "viscosity": "kinematic_viscosity nu",
    "source": "sensor terminal address pin physical_channel",
    "rate": "frequency sample_rate sampling_rate dt period",
    "substeps": "steps sub_steps",
    "integrator": "method solver",
}


def keys_called(name: str) -> list[str]:
    """The keys that a name may stand for.

    >>> keys_called("piston_diameter"), keys_called("Diameter")
    (['bore'], ['bore', 'rod_diameter', 'inner_diameter'])
    """
    return [key for key, names in _BY_KEY.items() if name.casefold() in names.casefold().split()]
