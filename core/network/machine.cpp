#include "consist/handshake.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "consist/handshake.h"

namespace consist::network {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  if (boot.empty() || stat("/proc/self/ns/net", &space) != 0) return "unknown " + random_hex(8);
  return boot + " " + std::to_string(space.st_ino);
}

}  // namespace consist::network
