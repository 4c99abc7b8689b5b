"""What the tests build their cases from: real wheels, scratch sites, libraries that misbehave."""
