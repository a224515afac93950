"""Readers, builders and generators of surgical data."""
