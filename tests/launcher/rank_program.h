// Runs the test program as a rank, if it was started as one.
#pragma once

#include <string>
#include <vector>

namespace consist::testing {

/// Words:
///   exit RANK STATUS      rank RANK ends with STATUS at once, the others with 1 a little later
///   say                   every rank writes a line to both outputs
///   wait                  sleeps for a minute, deaf to SIGTERM
///   pids FOLDER           writes its process id into FOLDER/<rank> and sleeps for a minute
///   train STEPS TIMEOUT_MS [kill|stop|spin|kill-always RANK STEP]
///                         joins the job and sums vectors for some steps; then one rank may be killed, stopped or stuck, in
///                         generation 0 or always; SIGINT ends it in good order after a step
int run_rank(const std::vector<std::string>& words);

}  // namespace consist::testing
