"""Tables of the papers behind the methods, measured again: studies, their registry, and the processes they learn."""
