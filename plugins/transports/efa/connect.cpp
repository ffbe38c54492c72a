#include "plugins/transports/efa/connect.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/handshake.h"
#include "consist/host_transport.h"
#include "consist/wire.h"
#include "plugins/transports/efa/devices.h"
#include "plugins/transports/efa/fabric_links.h"

namespace consist::efa {
namespace {

using network::Nonce;
using network::Side;

/// The text that a member gives the others once it has an endpoint.
struct Contact {
  std::string provider;
  std::string address;
  Nonce nonce{};
};

std::string encode(const Contact& contact) {
  return network::WireWriter()
      .text(contact.provider)
      .text(contact.address)
      .text({contact.nonce.data(), contact.nonce.size()})
      .take();
}

Contact decode(std::string_view bytes) {
  network::WireReader reader(bytes);
  Contact contact;
  contact.provider = reader.text();
  contact.address = reader.text();
  const std::string_view nonce = reader.text();
  if (nonce.size() != contact.nonce.size()) throw DataError("a member's contact has a random number of the wrong length");
  std::copy(nonce.begin(), nonce.end(), contact.nonce.begin());
  return contact;
}

class Connector {
 public:
  Connector(Job& job, const GroupRequest& group, const HostOptions& options) : job_(job), group_(group), options_(options) {}

  std::unique_ptr<PointToPoint> connect_all() {
    const Libfabric& library = load_libfabric(options_.libfabric);
    const bool within_machine = all_on_one_machine();
    auto endpoint = std::make_unique<Endpoint>(
        library, EndpointRequest{options_.provider, options_.device, job_.local_rank(), within_machine});
    const Contact own{endpoint->provider(), endpoint->address(), network::make_nonce()};
    for (const std::string& text : exchange_texts(job_, group_, "efa.contact", encode(own))) contacts_.push_back(decode(text));
    std::vector<Partner> partners(contacts_.size());
    for (std::size_t i = 0; i < contacts_.size(); ++i) {
      if (contacts_[i].provider != own.provider) {
        throw UsageError("rank " + std::to_string(group_.ranks[index()]) + " uses libfabric's provider " + own.provider +
                         ", rank " + std::to_string(group_.ranks[i]) + " uses " + contacts_[i].provider +
                         "; all ranks need the same");
      }
      if (i != index()) partners[i] = {endpoint->insert(contacts_[i].address), tag(index(), i), tag(i, index())};
    }
    std::string path = "libfabric " + library.version_text() + " " + endpoint->provider() + " on " + endpoint->device();
    if (options_.provider == "tcp" && within_machine && endpoint->device() != "lo")
      path += " (within one machine: through its lo)";
    std::optional<SentBytes> counter;
    if (options_.provider == "efa") counter.emplace(endpoint->device());
    if (counter && !counter->known()) path += " (the device does not show what it sends)";
    auto links = std::make_unique<FabricLinks>(job_, group_.name, group_.index, group_.ranks, std::move(endpoint),
                                               std::move(partners), std::move(path));
    prove(*links);
    if (counter) counter->expect(links->bytes_sent());
    return links;
  }

 private:
  std::size_t index() const { return static_cast<std::size_t>(group_.index); }

  bool all_on_one_machine() const {
    const std::vector<std::string> machines = exchange_texts(job_, group_, "efa.machine", network::machine_identity());
    return std::all_of(machines.begin(), machines.end(), [&](const std::string& machine) { return machine == machines[0]; });
  }

  /// Bytes that only those who know the job's token can make, different for each purpose, pair, direction and connection.
  std::string secret(const std::string& purpose, std::size_t from, std::size_t to) const {
    const std::string claim = std::to_string(from) + " to " + std::to_string(to);
    return network::make_proof(job_.token(), Side::client, "efa/" + group_.name + "/" + purpose, contacts_[from].nonce,
                               contacts_[to].nonce, claim);
  }

  std::uint64_t tag(std::size_t from, std::size_t to) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, secret("tags", from, to).data(), sizeof(bits));
    return bits >> (64 - Endpoint::tag_bits + FabricLinks::number_bits);
  }

  /// The first message of every pair, in both directions.
  void prove(FabricLinks& links) {
    const std::size_t members = contacts_.size();
    proofs_.resize(members);
    answers_.resize(members);
    for (std::size_t i = 0; i < members; ++i) {
      if (i == index()) continue;
      proofs_[i] = secret("proof", index(), i);
      answers_[i].resize(proofs_[i].size());
      links.post_receive(static_cast<int>(i), answers_[i].data(), answers_[i].size());
      links.post_send(static_cast<int>(i), proofs_[i].data(), proofs_[i].size());
    }
    for (std::size_t i = 0; i < members; ++i) {
      if (i == index()) continue;
      links.wait_sent(static_cast<int>(i), 1);
      links.wait_received(static_cast<int>(i), 1);
      if (!network::proofs_equal(answers_[i], secret("proof", i, index()))) {
        throw PeerError(group_.ranks[i], "who answers at the address of rank " + std::to_string(group_.ranks[i]) + " in group '" +
                                             group_.name + "' does not know this job's token");
      }
    }
  }

  Job& job_;
  const GroupRequest& group_;
  const HostOptions& options_;
  std::vector<Contact> contacts_;
  std::vector<std::string> proofs_, answers_;  // under way until the links are gone
};

}  // namespace

std::string provider_problem(const HostOptions& options, bool device_memory) {
  try {
    const Libfabric& library = load_libfabric(options.libfabric);
    std::string reason;
    if (find_endpoints(library, options.provider, device_memory, reason)) return {};
    return "libfabric " + library.version_text() + " (" + library.path + ") offers no endpoint of provider '" + options.provider +
           (device_memory ? "' for memory of GPUs: " : "': ") + reason;
  } catch (const UnavailableError& error) {
    return error.what();
  }
}

std::unique_ptr<PointToPoint> connect_members(Job& job, const GroupRequest& group, const HostOptions& options) {
  if (group.ranks.size() == 1) {
    return std::make_unique<FabricLinks>(job, group.name, group.index, group.ranks, nullptr, std::vector<Partner>{},
                                         "none (one member)");
  }
  return Connector(job, group, options).connect_all();
}

}  // namespace consist::efa
