"""Backends that ship with the package. Each is loaded by importing it, and needs its own extra if any."""
