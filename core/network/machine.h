// Which machine this is, as far as networks are concerned.
#pragma once

#include <string>

namespace consist::network {

/// What this machine calls itself; "unknown" if it does not say.
std::string host_name();

/// The boot of this machine and the network namespace of this process: processes that agree reach one another by loopback. Where
/// that cannot be found out, it is a text that no other process has.
std::string machine_identity();

}  // namespace consist::network
