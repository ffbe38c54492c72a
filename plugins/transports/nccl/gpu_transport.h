// The base of transports that serve GPUs alone, on NCCL: nvlink, shm and ib.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "consist/transport.h"
#include "plugins/transports/nccl/connect.h"

namespace consist::nccl {

class CONSIST_API GpuTransport : public Transport {
 public:
  std::string unavailable(std::string_view device_kind) const final;
  std::string cannot_connect(std::string_view device_kind, bool several_hosts) const final;
  int preference(std::string_view device_kind, bool several_hosts) const final;
  std::unique_ptr<Communicator> connect(Job& job, const GroupRequest& group) override;

 protected:
  /// `what` connects GPUs, for messages: "NVLink".
  GpuTransport(std::string what, ConnectOptions options);
  const ConnectOptions& options() const noexcept { return options_; }
  /// The reason why it cannot serve GPUs of this machine, where NCCL can work; empty if it can. Must not start anything.
  virtual std::string missing() const = 0;
  /// The reason why it cannot connect groups within one host, or on several; empty if it can.
  virtual std::string wrong_place(bool several_hosts) const = 0;
  virtual int preference_of(bool several_hosts) const = 0;  ///< among transports of GPUs
  /// The sentence behind an error of a path that was not taken: "--transport socket goes without NVLink".
  virtual std::string instead() const = 0;

 private:
  std::string not_for(std::string_view device_kind) const;

  const std::string what_;
  const ConnectOptions options_;
};

/// --NAME.within-host of a transport that connects hosts: "auto", "nvlink", "shm", or its own name.
CONSIST_API WithinHost within_host_from(const std::string& text);

/// Why such a transport cannot connect groups within one host: nothing would go over it. Empty if it carries those, too.
/// `network`: "EFA".
CONSIST_API std::string nothing_between_hosts(const std::string& transport, const std::string& network, WithinHost within);

}  // namespace consist::nccl
