"""noisewright: new methods for diffusion and flow-matching models, each beside its baselines."""
