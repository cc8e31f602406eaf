"""From a quantised graph to layers: ends cut off, ops that the hardware lacks rewritten, the rest joined layer by layer."""
