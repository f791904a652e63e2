"""A job from its creation to its deletion: phases, success, failure, suspension, termination."""
