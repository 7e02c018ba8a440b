"""Placeholder while the stages are being written."""
