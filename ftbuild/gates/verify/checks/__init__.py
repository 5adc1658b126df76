"""The checks of verify: functions that yield verdicts on one product's image (docs/verify.md)."""
