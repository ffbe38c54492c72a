#include <cstdint>
#include <sstream>
#include <string>

#include "consist/host.h"

namespace consist {

bool has_ipc_lock(std::string_view status) {
  constexpr unsigned ipc_lock = 14;  // CAP_IPC_LOCK
  std::istringstream words{std::string(status)};
  for (std::string word; words >> word;) {
    if (word != "CapEff:") continue;
    std::uint64_t capabilities = 0;
    return (words >> std::hex >> capabilities) && (capabilities >> ipc_lock & 1U) != 0;
  }
  return false;
}

}  // namespace consist
