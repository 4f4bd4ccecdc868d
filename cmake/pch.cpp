// Carries the precompiled torch header; holds no code of its own.
