// Reads in NCCL's own log which paths it chose. Pure functions over text; no NCCL is needed.
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace consist::nccl {

/// One direction of one pair of members, as NCCL names it: ranks are positions within the communicator.
struct Connection {
  int from = 0;
  int to = 0;
  std::string path;  ///< "P2P/CUMEM", "SHM/direct/direct", "NET/Socket/0"
  auto operator<=>(const Connection&) const = default;
};

struct LogFindings {
  std::string version;                  ///< "2.28.9+cuda13.0"; empty if the text does not say
  std::vector<std::string> interfaces;  ///< of NET/Socket, by device number: "eth0"
  std::vector<std::string> hcas;        ///< devices of NET/IB, by number: "mlx5_0:1/IB", "mlx5_2:1/RoCE", merged "mlx5_0+mlx5_1"
  std::vector<std::string> providers;   ///< of libfabric, that the AWS OFI plugin chose: "efa"; without duplicates
  std::string plugin;                   ///< "aws-ofi-nccl 1.16.2"; empty if that plugin says nothing
  std::vector<Connection> connections;  ///< without duplicates, in order of members
  std::vector<std::string> multicast;   ///< members' lines which say that NVLink multicast (NVLS) is in use
  std::vector<std::string> warnings;    ///< texts of NCCL WARN lines
};

inline constexpr int every_device = -1;

/// Reads lines of NCCL_DEBUG=INFO (NCCL_DEBUG_SUBSYS with INIT, NET, P2P, SHM). `device` keeps the connections, multicast and
/// warnings of one CUDA device only, for processes with several. Lines that are not NCCL's are skipped.
LogFindings read_log(std::string_view text, int device = every_device);

}  // namespace consist::nccl
