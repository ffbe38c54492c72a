// The program that was built.
#pragma once

#include <string>

namespace consist::test {

inline const std::string program = CONSIST_BINARY_DIR "/bin/consist";

}  // namespace consist::test
