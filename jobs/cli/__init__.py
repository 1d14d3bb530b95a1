"""The command `ridgestream`: commands and options, exit codes, signals."""
