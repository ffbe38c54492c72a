#include "plugins/transports/nccl/path_verification.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

namespace consist::nccl {
namespace {

constexpr std::string_view socket_prefix = "NET/Socket/", ib_prefix = "NET/IB/";
/// Names that NCCL gives the AWS OFI plugin: since its version 1.12, before that, and with NCCL_NET=OFI.
constexpr std::string_view ofi_prefixes[] = {"NET/Libfabric/", "NET/AWS Libfabric/", "NET/OFI/"};

using Pair = std::pair<int, int>;

/// The prefix of a network whose NICs may reach GPUs' memory, without its last slash: "NET/IB"; empty: it is none of those.
std::string_view rdma_network(std::string_view path) {
  const auto begins = [&](std::string_view prefix) { return path.starts_with(prefix); };
  if (begins(ib_prefix)) return ib_prefix.substr(0, ib_prefix.size() - 1);
  const auto* const ofi = std::find_if(std::begin(ofi_prefixes), std::end(ofi_prefixes), begins);
  return ofi == std::end(ofi_prefixes) ? std::string_view() : ofi->substr(0, ofi->size() - 1);
}

bool is_network_of(Path path, std::string_view connection) {
  if (path == Path::socket) return connection.starts_with(socket_prefix);
  if (path == Path::ib) return connection.starts_with(ib_prefix);
  return path == Path::efa && !connection.starts_with(ib_prefix) && !rdma_network(connection).empty();
}

bool is_direct_p2p(std::string_view path) {
  // "P2P/indirect" goes through a third GPU.
  return path.starts_with("P2P/") && !path.starts_with("P2P/indirect");
}

bool is_host_memory(std::string_view path) {
  return path.starts_with("SHM/");
}

bool has_gpudirect(std::string_view path) {
  return path.find("/GDRDMA") != std::string_view::npos;
}

/// The name of the device whose number follows the prefix; empty if the member did not name it.
std::string device_of(std::string_view path, std::string_view prefix, const std::vector<std::string>& names) {
  if (!path.starts_with(prefix)) return {};
  std::size_t device = 0;
  const std::string_view digits = path.substr(prefix.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device);
  return error == std::errc() && device < names.size() ? names[device] : "";
}

/// Devices are of no interest but for their kind: "NET/Socket/0" becomes "NET/Socket on eth0", "NET/Libfabric/3/GDRDMA/Shared"
/// "NET/Libfabric with GPUDirect".
std::string readable(const Connection& connection, const MemberFindings& member) {
  const std::string_view path = connection.path;
  if (const std::string_view network = rdma_network(path); !network.empty())
    return std::string(network) + (has_gpudirect(path) ? " with GPUDirect" : " without GPUDirect");
  const std::string interface = device_of(path, socket_prefix, member.interfaces);
  return interface.empty() ? connection.path : "NET/Socket on " + interface;
}

/// The same of one that keeps the promise: which links it took is known.
std::string proven(const Promise& promise, const Connection& connection, const MemberFindings& member) {
  const std::string text = readable(connection, member);
  if (is_host_memory(connection.path)) return text + " through host memory";
  return is_direct_p2p(connection.path) && promise.within != WithinHost::nvlink ? text + " over PCIe" : text;
}

std::string between(Pair pair, const std::vector<int>& ranks) {
  const auto name = [&](int member) {
    return member >= 0 && static_cast<std::size_t>(member) < ranks.size()
               ? std::to_string(ranks[static_cast<std::size_t>(member)])
               : "?";
  };
  return " between ranks " + name(pair.first) + " and " + name(pair.second);
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// Error text if NVLink does not connect members although NCCL reports peer-to-peer; empty if it does.
std::string link_problem(const std::string& asked, const std::vector<MemberFindings>& members, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const Connection& connection : members[i].connections) {
      if (!is_direct_p2p(connection.path)) continue;
      if (members[i].active_links == 0) {
        return asked + "but the GPU of rank " + std::to_string(ranks[i]) + " has no NVLink that is up (says NVML)";
      }
      const std::vector<int>& missing = members[i].not_linked;
      if (connection.from != static_cast<int>(i) || std::find(missing.begin(), missing.end(), connection.to) == missing.end())
        continue;
      return asked + "got " + connection.path + " without NVLink" + between({connection.from, connection.to}, ranks) +
             " (says NVML)";
    }
  }
  return {};
}

/// Error text if a peer-to-peer connection may have gone through NVLink; empty if NVML says that none has.
std::string nvlink_problem(const std::string& asked, const std::vector<MemberFindings>& members, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const Connection& connection : members[i].connections) {
      if (!is_direct_p2p(connection.path)) continue;
      const int own = static_cast<int>(i), other = connection.from == own ? connection.to : connection.from;
      const std::vector<int>& apart = members[i].not_linked;
      if (std::find(apart.begin(), apart.end(), other) != apart.end()) continue;
      return asked + "got " + connection.path + between(std::minmax(own, other), ranks) +
             ", of which NVML does not say that it goes without NVLink";
    }
  }
  return {};
}

/// Error text if none of the connections goes through the network that was asked for; empty if one does.
std::string unused_problem(const Promise& promise, const std::string& asked, const std::vector<MemberFindings>& members) {
  for (const MemberFindings& member : members) {
    for (const Connection& connection : member.connections) {
      if (is_network_of(promise.path, connection.path)) return {};
    }
  }
  const std::string name(name_of(promise.path));
  const bool by_nvlink = promise.within == WithinHost::nvlink;
  return asked + "but the members of the group are on one host and use " + std::string(text_of(promise.within)) +
         " among themselves; take transport " + (by_nvlink ? "nvlink" : "shm") + ", or give --" + name + ".within-host=" + name;
}

/// Error text, although NCCL reports the AWS OFI plugin, if a member's provider of libfabric is not efa; empty if all are.
std::string provider_problem(const std::string& asked, const std::vector<MemberFindings>& members,
                             const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].providers == std::vector<std::string>{"efa"}) continue;
    std::string found;
    for (const std::string& provider : members[i].providers) found += (found.empty() ? "" : ", ") + provider;
    return asked +
           (found.empty() ? "but the AWS OFI plugin named no provider of libfabric" : "got libfabric's provider " + found) +
           " on rank " + std::to_string(ranks[i]);
  }
  return {};
}

/// "provider efa, aws-ofi-nccl 1.16.2".
std::string provider_text(const std::vector<MemberFindings>& members) {
  std::set<std::string> plugins;
  for (const MemberFindings& member : members) {
    if (!member.plugin.empty()) plugins.insert(member.plugin);
  }
  return "provider efa" + (plugins.empty() ? std::string() : ", " + joined(plugins));
}

/// "mlx5_0:1/IB, mlx5_1:1/IB": the devices that connections went through.
std::string hca_text(const std::vector<MemberFindings>& members) {
  std::set<std::string> used;
  for (const MemberFindings& member : members) {
    for (const Connection& connection : member.connections) {
      if (const std::string hca = device_of(connection.path, ib_prefix, member.hcas); !hca.empty()) used.insert(hca);
    }
  }
  return used.empty() ? "devices that NCCL did not name" : joined(used);
}

std::string links_text(const std::vector<MemberFindings>& members) {
  int least = members.front().active_links, most = least;
  for (const MemberFindings& member : members) {
    least = std::min(least, member.active_links);
    most = std::max(most, member.active_links);
  }
  if (least == unknown_links) return " over NVLink (by NCCL's topology; NVML does not tell)";
  return " over " + (least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most)) + " NVLinks";
}

struct Sorted {
  std::set<std::string> good;       ///< connections that keep the promise
  std::map<std::string, Pair> bad;  ///< others, with the first pair of each kind
  bool peer_to_peer = false;        ///< among the good ones
};

Sorted sorted(const Promise& promise, const std::vector<MemberFindings>& members) {
  Sorted result;
  for (const MemberFindings& member : members) {
    for (const Connection& connection : member.connections) {
      if (keeps_promise(promise, connection)) {
        result.good.insert(proven(promise, connection, member));
        result.peer_to_peer |= is_direct_p2p(connection.path);
      } else {
        result.bad.try_emplace(readable(connection, member), std::minmax({connection.from, connection.to}));
      }
    }
  }
  return result;
}

}  // namespace

std::string_view name_of(Path path) noexcept {
  switch (path) {
    case Path::nvlink:
      return "nvlink";
    case Path::shm:
      return "shm";
    case Path::socket:
      return "socket";
    case Path::ib:
      return "ib";
    case Path::efa:
      break;
  }
  return "efa";
}

std::string_view text_of(WithinHost within) noexcept {
  switch (within) {
    case WithinHost::automatic:
      return "what they have";
    case WithinHost::nvlink:
      return "NVLink";
    case WithinHost::shm:
      return "peer copies over PCIe or host memory";
    case WithinHost::pcie:
      return "peer copies over PCIe";
    case WithinHost::memory:
      return "host memory";
    case WithinHost::network:
      break;
  }
  return "the network";
}

Promise::Promise(Path wanted)
    : path(wanted),
      within(wanted == Path::shm      ? WithinHost::shm
             : wanted == Path::socket ? WithinHost::network
                                      : WithinHost::nvlink) {}

bool keeps_promise(const Promise& promise, const Connection& connection) {
  const std::string_view path = connection.path;
  const WithinHost within = promise.within;
  if (is_direct_p2p(path)) return within == WithinHost::nvlink || within == WithinHost::shm || within == WithinHost::pcie;
  if (is_host_memory(path)) return within == WithinHost::shm || within == WithinHost::memory;
  if (!is_network_of(promise.path, path)) return false;
  return promise.path == Path::socket || !promise.gpudirect || has_gpudirect(path);
}

Verdict verify_path(const Promise& promise, const std::vector<MemberFindings>& members, const std::vector<int>& ranks) {
  const std::string asked = "asked for " + std::string(name_of(promise.path)) + ", ";
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].connections.empty()) {
      return {"", asked + "but NCCL named no connection of rank " + std::to_string(ranks[i]) + ": the path cannot be verified"};
    }
    if (!members[i].multicast.empty()) {
      return {"", asked + "got NVLink multicast on rank " + std::to_string(ranks[i]) + " ('" + members[i].multicast.front() +
                      "'); set NCCL_NVLS_ENABLE=0"};
    }
  }
  const Sorted found = sorted(promise, members);
  if (!found.bad.empty()) {
    std::string problem;
    for (const auto& [path, pair] : found.bad) problem += (problem.empty() ? asked + "got " : ", ") + path + between(pair, ranks);
    return {"", problem};
  }
  std::string path = joined(found.good), problem;
  if (found.peer_to_peer) {
    const bool by_nvlink = promise.within == WithinHost::nvlink;
    problem = by_nvlink ? link_problem(asked, members, ranks) : nvlink_problem(asked, members, ranks);
    if (by_nvlink) path += links_text(members);
  }
  if (promise.path == Path::efa && problem.empty()) problem = provider_problem(asked, members, ranks);
  if ((promise.path == Path::efa || promise.path == Path::ib) && problem.empty())
    problem = unused_problem(promise, asked, members);
  if (!problem.empty()) return {"", problem};
  if (promise.path == Path::efa) path += "; " + provider_text(members);
  if (promise.path == Path::ib) path += "; " + hca_text(members);
  return {path, ""};
}

}  // namespace consist::nccl
