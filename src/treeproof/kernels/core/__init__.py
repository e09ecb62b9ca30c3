"""What all kernels build on: the compiler, trees, cells, leaves, balls, exact arithmetic."""
