// One end of tagged messages in libfabric, with the objects that it stands on.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "plugins/transports/efa/libfabric.h"

namespace consist::efa {

struct EndpointRequest {
  std::string provider;         ///< "efa" or "tcp"
  std::string device;           ///< domain of libfabric ("rdmap0s6-rdm"), or for tcp an interface ("eth0"); empty: chosen
  int local_rank = 0;           ///< of this process on its host: ranks spread over the devices of a host
  bool within_machine = false;  ///< all who talk are on this machine: tcp takes the loopback interface
};

/// A message that has been finished, or failed.
struct Completion {
  void* context = nullptr;  ///< of the message; null: none was finished
  std::size_t bytes = 0;    ///< that came, of a receive; of one that was too short for them, as many as were sent
  std::string error;        ///< empty: it is done
};

/// Used from one thread at a time. The context of a message is an fi_context2 that outlives it.
class Endpoint {
 public:
  /// Throws UnavailableError for a provider that is not there, UsageError for an unknown device listing what there is,
  /// SystemError.
  Endpoint(const Libfabric& library, const EndpointRequest& request);
  ~Endpoint();  ///< messages under way are dropped
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// By which others reach it: bytes for insert().
  std::string address() const;
  /// The other's number for send() and receive(). Throws SystemError for bytes that are no address of this provider.
  fi_addr_t insert(const std::string& address);

  /// False: there is no room at present, try again after poll(). Throws SystemError.
  bool send(fi_addr_t to, std::uint64_t tag, const void* data, std::size_t bytes, fi_context2* context);
  bool receive(fi_addr_t from, std::uint64_t tag, void* data, std::size_t bytes, fi_context2* context);

  /// Moves what can be moved and gives what finished; less than `finished` has room for: there is no more at present.
  std::size_t poll(std::span<Completion> finished);
  /// The same, but waits for at least one until `limit` has passed.
  std::size_t wait(std::span<Completion> finished, std::chrono::milliseconds limit);

  const std::string& provider() const noexcept { return provider_; }  ///< as opened: "efa", "tcp;ofi_rxm"
  const std::string& device() const noexcept { return device_; }      ///< "rdmap0s6-rdm", "lo"
  const Libfabric& library() const noexcept { return library_; }

  /// Tags have this many bits of their own.
  static constexpr int tag_bits = 62;

 private:
  void choose(const EndpointRequest& request);
  void open();
  void check(long result, const char* what) const;
  bool accepted(long result, const char* what) const;
  std::size_t take(long result, std::span<Completion> finished);
  void close() noexcept;

  const Libfabric& library_;
  Info info_;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  bool can_block_ = false;  ///< the completion queue wakes a waiting thread
  std::string provider_;
  std::string device_;
  static constexpr std::size_t batch = 16;
  fi_cq_msg_entry entries_[batch] = {};
};

}  // namespace consist::efa
