// How threads of a parallel region wait: asleep, not spinning. Other lanes (copies, I/O, the
// optimizer) and other processes need the cores; on two of them, beside another process, spinning
// was measured to make a step seven times slower, and sleeping costs nothing measurable.
#pragma once

namespace marea {

// OpenMP reads its settings as it is loaded, before main: unless OMP_WAIT_POLICY is set already,
// sets it and starts this program again with the same arguments. Returns where that is not needed
// or not possible. Call it before anything else.
void SleepWhenWaiting(char** argv);

}  // namespace marea
