"""Policy evaluation: value functions of states from transitions, by least squares temporal differences."""
