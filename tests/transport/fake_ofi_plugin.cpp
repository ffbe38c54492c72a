// The beginning of a network plugin of NCCL: its record, whose first field is the name.
#ifndef CONSIST_FAKE_NETWORK
#define CONSIST_FAKE_NETWORK "Libfabric"
#endif

extern "C" {
struct Record {
  const char* name;
};
[[gnu::visibility("default")]] extern const Record ncclNetPlugin_v9;
const Record ncclNetPlugin_v9{CONSIST_FAKE_NETWORK};
}
