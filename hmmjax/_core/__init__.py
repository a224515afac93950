"""Shared internals: arrays in, arrays out; nothing here is public."""
