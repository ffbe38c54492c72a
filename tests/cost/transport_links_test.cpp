// Links of transports: in machine files, on the command line, and over the axes of a mesh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/cost/machine_file.h"
#include "core/plan/machine_choice.h"
#include "tests/cost/plain_machine.h"

namespace consist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using test::links_of;
using test::plain_machine;
using test::shared;

const Op& op(const char* name) {
  return registry().get(name);
}

/// Two ranks a node; `fast` is known within a node alone, `slow` everywhere.
Machine two_transports() {
  Machine machine = plain_machine();
  machine.node = links_of(100);
  machine.network = links_of(10);
  machine.transports = {{"fast", links_of(1000), {}}, {"slow", links_of(4), links_of(2)}};
  machine.transports[1].node->beside_compute = {0.5};
  machine.transports[1].network->compute_beside = {0.25};
  return machine;
}

double large_rate(const LinkRates& links) {
  return links.curves.back().rates.back().rate;
}

TEST(TransportLinks, EachAxisHasThoseOfItsTransport) {
  const Mesh mesh({{"data", 2}, {"tensor", 2}});  // data crosses nodes, tensor does not
  const CostModel costs(shared(two_transports()), mesh, {"slow", "fast"});
  const auto seconds = [&](AxisSet axes) { return costs.transfer_seconds(op("all_gather"), 100, axes); };
  EXPECT_DOUBLE_EQ(seconds(0), 50) << "slow across nodes";
  EXPECT_DOUBLE_EQ(seconds(1), 0.1) << "fast within a node";
  EXPECT_DOUBLE_EQ(costs.message_seconds(100, 0), 50);
  EXPECT_DOUBLE_EQ(costs.message_seconds(100, 1), 0.1);
  EXPECT_DOUBLE_EQ(costs.compute_share_beside(0), 0.25);
  EXPECT_DOUBLE_EQ(costs.compute_share_beside(1), 1);
  EXPECT_EQ(costs.transport(0), "slow");
  EXPECT_EQ(costs.transport(1), "fast");

  const CostModel other(shared(two_transports()), mesh, {"", "slow"});
  EXPECT_DOUBLE_EQ(other.transfer_seconds(op("all_gather"), 100, 0), 10) << "not named: the machine's own";
  EXPECT_DOUBLE_EQ(other.transfer_seconds(op("all_gather"), 100, 1), 25);
  EXPECT_DOUBLE_EQ(other.transfer_seconds(op("all_gather"), 100, 1, Beside::compute), 50);
  EXPECT_DOUBLE_EQ(other.share_beside_compute(1), 0.5);
  EXPECT_EQ(other.transport(0), "");
}

TEST(TransportLinks, GroupsWithinNodesAndAcrossThemMayHaveTransportsOfTheirOwn) {
  const Mesh mesh({{"data", 2}, {"tensor", 2}});  // data crosses nodes, tensor does not
  const AxisTransports of_axis("fast", "slow");
  const CostModel costs(shared(two_transports()), mesh, {of_axis, of_axis});
  const AxisSet both = AxisSet(0) | AxisSet(1);
  EXPECT_EQ(costs.transport(0), "slow");
  EXPECT_EQ(costs.transport(1), "fast");
  EXPECT_EQ(costs.transport(both), "slow");
  const std::vector<int> neighbours{0, 1}, apart{0, 2};
  EXPECT_EQ(costs.transport(0, neighbours), "fast") << "of an axis that crosses nodes elsewhere";
  EXPECT_EQ(costs.transport(0, apart), "slow");
  // Between nodes the axes count that cross them: a name for tensor says nothing about what goes to other nodes.
  const CostModel named(shared(two_transports()), mesh, {"slow", "fast"});
  EXPECT_EQ(named.transport(both), "slow");
  EXPECT_EQ(named.transports_over(both, true), std::vector<std::string>{"slow"});
  EXPECT_EQ(named.transports_over(both, false), (std::vector<std::string>{"slow", "fast"})) << "which no run accepts";
}

TEST(TransportLinks, AGroupOnSeveralNodesIsNoFasterThanItsTransportWithinOne) {
  Machine machine = two_transports();
  machine.transports[1].network = links_of(3);
  const CostModel costs(shared(machine), Mesh({{"data", 4}}), {"slow"});
  // Two members a node send 100 bytes over 2 x 3 bytes/s, and within the node over 4.
  EXPECT_DOUBLE_EQ(costs.transfer_seconds(op("all_gather"), 100, 0), 25);
}

TEST(TransportLinks, WhatTheMachineDoesNotKnowHasItsOwnLinks) {
  const Mesh mesh({{"data", 2}, {"tensor", 2}});
  const CostModel costs(shared(two_transports()), mesh, {"fast", "pigeons"});
  EXPECT_FALSE(costs.knows_links(0)) << "fast goes nowhere beyond its node";
  EXPECT_FALSE(costs.knows_links(1));
  EXPECT_DOUBLE_EQ(costs.transfer_seconds(op("all_gather"), 100, 0), 10);
  EXPECT_DOUBLE_EQ(costs.transfer_seconds(op("all_gather"), 100, 1), 1);
  const CostModel known(shared(two_transports()), mesh, {"", "fast"});
  EXPECT_TRUE(known.knows_links(0));
  EXPECT_TRUE(known.knows_links(1));
}

TEST(TransportLinks, AreReadAndWrittenToTheBit) {
  Machine machine = *find_machine("h100");
  LinkRates links = links_of(1e9 / 3);
  links.beside_compute = {1.0 / 7, FigureSource::measured_here};
  machine.transports = {{"apart", {}, links}, {"both", links, links_of(7)}, {"within", links, {}}};
  const std::string text = to_json(machine);
  const Machine again = machine_from_json(text, "again");
  EXPECT_EQ(to_json(again), text);
  ASSERT_EQ(again.transports.size(), 3U);
  EXPECT_FALSE(again.find_transport("apart")->node.has_value());
  EXPECT_FALSE(again.find_transport("within")->network.has_value());
  EXPECT_EQ(again.find_transport("both")->node->beside_compute.value, 1.0 / 7);
  EXPECT_EQ(large_rate(*again.find_transport("both")->network), 7);
  EXPECT_EQ(again.find_transport("pigeons"), nullptr);
}

TEST(TransportLinks, OfAFileMayBeTheMachinesOwn) {
  Json json = Json::parse(to_json(*find_machine("h200")));
  json["transports"] = {
      {"note", "two of one kind"}, {"a", {{"node", "network"}, {"network", "network"}}}, {"b", {{"node", "node"}}}};
  const Machine machine = machine_from_json(json.dump(), "m.json");
  ASSERT_EQ(machine.transports.size(), 2U);
  EXPECT_EQ(large_rate(*machine.find_transport("a")->node), large_rate(machine.network));
  EXPECT_EQ(large_rate(*machine.find_transport("a")->network), large_rate(machine.network));
  EXPECT_EQ(large_rate(*machine.find_transport("b")->node), large_rate(machine.node));
}

TEST(TransportLinks, ErrorsNameTheKeyAndWhatIsLegal) {
  const Json good = Json::parse(to_json(*find_machine("h200")));
  const auto with = [&](const Json& transports) {
    Json bad = good;
    bad["transports"] = transports;
    try {
      machine_from_json(bad.dump(), "m.json");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(with(Json::object()), "");
  EXPECT_THAT(with(Json::array()), HasSubstr("m.json: transports must be an object"));
  EXPECT_THAT(with({{"socket", Json::object()}}),
              AllOf(HasSubstr("m.json: transports: socket must have links"), HasSubstr("\"network\"")));
  EXPECT_THAT(with({{"socket", {{"node", "nvlink"}}}}),
              AllOf(HasSubstr("transports: socket: node is \"nvlink\""), HasSubstr("\"node\" or \"network\"")));
  EXPECT_THAT(with({{"socket", {{"node", 4e9}}}}), HasSubstr("transports: socket: node must be an object"));
  EXPECT_THAT(with({{"socket", {{"node", good["node"]}, {"lane", 1}}}}),
              HasSubstr("transports: socket has the unknown key \"lane\""));
  Json slow = good["node"];
  slow["curves"][0]["rates"][0][1] = -1;
  EXPECT_THAT(with({{"socket", {{"network", slow}}}}), HasSubstr("transports: socket: network: curves[0]: rates[0] must have"));
}

TEST(TransportLinks, HaveFiguresOnTheCommandLine) {
  const Machine machine = parse_machine("h200,socket-node=4e9,socket-network=2e9,pigeons-network=1e3");
  EXPECT_EQ(large_rate(*machine.find_transport("socket")->node), 4e9);
  EXPECT_EQ(large_rate(*machine.find_transport("socket")->network), 2e9);
  EXPECT_EQ(large_rate(*machine.find_transport("pigeons")->network), 1e3);
  EXPECT_FALSE(machine.find_transport("pigeons")->node.has_value());
  EXPECT_EQ(large_rate(machine.node), large_rate(find_machine("h200")->node));
  // Links within a node are those of whichever transport, and what stands behind is taken last.
  const Machine all = parse_machine("h200,node=1e9,socket-node=2e9");
  EXPECT_EQ(large_rate(all.node), 1e9);
  EXPECT_EQ(large_rate(*all.find_transport("nvlink")->node), 1e9);
  EXPECT_EQ(large_rate(*all.find_transport("socket")->node), 2e9);
  EXPECT_EQ(large_rate(*all.find_transport("efa")->network), large_rate(find_machine("h200")->network));
  for (const char* bad : {"h200,socket-lane=1", "h200,-node=1", "h200,ranks-per-node=1.5", "h200,sokcet-node=1e9"}) {
    EXPECT_THROW(parse_machine(bad), UsageError) << bad;
  }
  EXPECT_THAT(text_of(machine), HasSubstr("; over socket 4.00 GB/s in a node, 2.00 GB/s to others"));
  EXPECT_THAT(text_of(machine), Not(HasSubstr("over nvlink"))) << "which is as the machine's own";
}

TEST(TransportLinks, OfMachinesThatShipSayWhereTheyComeFrom) {
  const Machine& h200 = *find_machine("h200");
  const TransportLinks& socket = *h200.find_transport("socket");
  // docs/results/collectives.md, four H200s: busbw of 256 MiB over sockets.
  const CostModel costs(shared(h200), Mesh({{"data", 4}}), {"socket"});
  const double mib256 = 256.0 * 1024 * 1024;
  EXPECT_NEAR(1.5 * mib256 / costs.transfer_seconds(op("all_reduce"), 1.5 * mib256, 0), 3.83e9, 1e7);
  EXPECT_NEAR(0.75 * mib256 / costs.transfer_seconds(op("all_gather"), 0.75 * mib256, 0), 3.78e9, 1e7);
  EXPECT_NEAR(0.75 * mib256 / costs.transfer_seconds(op("reduce_scatter"), 0.75 * mib256, 0), 3.69e9, 1e7);
  for (const LinkRates::Curve& curve : socket.node->curves) EXPECT_EQ(curve.source, FigureSource::measured) << curve.op;
  for (const LinkRates::Curve& curve : socket.network->curves) EXPECT_EQ(curve.source, FigureSource::data_sheet) << curve.op;
  for (const char* name : {"h200", "h100", "a100"}) {
    const Machine& machine = *find_machine(name);
    const auto rate = [&](const char* transport) { return large_rate(*machine.find_transport(transport)->network); };
    EXPECT_GT(rate("efa"), rate("socket")) << name;
    EXPECT_FALSE(machine.find_transport("nvlink")->network.has_value()) << name;
    EXPECT_EQ(large_rate(*machine.find_transport("nvlink")->node), large_rate(machine.node)) << name;
  }
}

}  // namespace
}  // namespace consist
