"""How many turns an agent may take as training goes on: ScalingInter-RL and other schedules, as
pure functions of training state.
"""
