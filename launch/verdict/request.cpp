#include "launch/verdict/request.h"

#include <algorithm>

#include "launch/verdict/amounts.h"

namespace consist::launch {

constexpr double least_confidence = 0.5;

VerdictRequest read_verdict_request(const CommandLine& line) {
  VerdictRequest request{.confidence = percent_of("confidence", line.value("confidence"), least_confidence)};
  if (line.has("slower")) request.slower = percent_of("slower", line.text("slower"));
  if (line.has("within")) {
    request.within = percent_of("within", line.text("within"));
  } else if (request.slower) {
    request.within = std::min(request.within, *request.slower);
  }
  if (line.has("run-spread")) request.run_spread = percent_of("run-spread", line.text("run-spread"));
  return request;
}

}  // namespace consist::launch
