"""The types of the native module."""

version: str
