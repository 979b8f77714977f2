"""What several architectures share; public, since authors of heads and architectures need it."""
