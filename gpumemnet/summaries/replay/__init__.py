"""From a tape to peaks: lifetimes, allocator calls, optimizer."""
