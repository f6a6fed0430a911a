"""Derivatives of nets by their input, and nets that are derivatives of others."""
