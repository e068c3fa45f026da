"""Measurements, side by side in one run. Ratios mean something; milliseconds are this machine's, today."""
