"""The screens as pictures: ``make screenshots``."""
