// A device for tests, "fake_gpu": two of them, whose memory the host cannot touch.
//
// Every byte is mapped twice. Tensors hold addresses of a mapping without access, so that host code
// which follows one ends at once; copies, and nothing else, go through the other mapping. What is
// put on a stream waits there until somebody synchronises with it: a read too early sees old bytes.

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "paddle/phi/backends/device_ext.h"

namespace {

constexpr size_t kDevices = 2;
constexpr size_t kArena = size_t{32} << 30;  // of addresses, of which only those written take memory
constexpr size_t kPage = 4096;
constexpr unsigned char kFresh = 0xff;  // bytes of new memory: numbers that are none

using Guard = std::lock_guard<std::recursive_mutex>;
std::recursive_mutex mutex;
thread_local int current = 0;

// The memory of one device: addresses without access, and the same bytes where copies find them.
struct Arena {
  char* shown = nullptr;
  char* bytes = nullptr;
  size_t used = 0, live = 0;
  std::multimap<size_t, size_t> unused;  // offsets by their sizes
  std::map<size_t, size_t> sizes;        // sizes by their offsets

  bool map() {
    if (shown != nullptr) return true;
    const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    void* first = mmap(nullptr, kArena, PROT_NONE, flags, -1, 0);
    if (first == MAP_FAILED) return false;
    void* second = mremap(first, 0, kArena, MREMAP_MAYMOVE);  // of size 0: the same pages once more
    if (second == MAP_FAILED || mprotect(second, kArena, PROT_READ | PROT_WRITE) != 0) return false;
    shown = static_cast<char*>(first);
    bytes = static_cast<char*>(second);
    return true;
  }

  bool holds(const void* at) const {
    const char* p = static_cast<const char*>(at);
    return shown != nullptr && p >= shown && p < shown + kArena;
  }
};

Arena arenas[kDevices];

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "fake_gpu: %s\n", message.c_str());
  std::abort();
}

// Where the bytes of an address of a device are; the host's own addresses are no such thing.
char* on_device(int device, const void* at, size_t size) {
  Arena& arena = arenas[device];
  if (size == 0) return arena.bytes;
  if (!arena.holds(at)) {
    for (size_t other = 0; other < kDevices; ++other) {
      if (arenas[other].holds(at)) fail("a copy of one device was given memory of another");
    }
    fail("a copy was given memory of the host as the device's");
  }
  const size_t offset = static_cast<const char*>(at) - arena.shown;
  if (offset + size > arena.used) fail("a copy goes beyond the memory of the device");
  return arena.bytes + offset;
}

void* on_host(const void* at) {
  for (const Arena& arena : arenas) {
    if (arena.holds(at)) fail("a copy was given memory of the device as the host's");
  }
  return const_cast<void*>(at);
}

struct Stream {
  std::deque<std::function<void()>> waiting;
};

struct Event {
  Stream* stream = nullptr;
  size_t left = 0;  // how many pieces of work of the stream came before it
};

std::vector<Stream*> streams[kDevices];
std::map<Stream*, size_t> done;  // how many pieces of work a stream has done, of all so far

void run_first(Stream* stream) {
  std::function<void()> work = std::move(stream->waiting.front());
  stream->waiting.pop_front();
  ++done[stream];
  work();
}

void run_all(Stream* stream) {
  while (!stream->waiting.empty()) run_first(stream);
}

bool defers() {
  static const bool flag = std::getenv("FAKE_GPU_AT_ONCE") == nullptr;
  return flag;
}

void enqueue(Stream* stream, std::function<void()> work) {
  stream->waiting.push_back(std::move(work));
  if (!defers()) run_all(stream);
}

Stream* of(C_Stream stream) { return reinterpret_cast<Stream*>(stream); }
Event* of(C_Event event) { return reinterpret_cast<Event*>(event); }

C_Status succeed() { return C_SUCCESS; }
C_Status ignore_device(const C_Device) { return C_SUCCESS; }

C_Status init_device(const C_Device device) {
  Guard guard(mutex);
  return arenas[device->id].map() ? C_SUCCESS : C_FAILED;
}

C_Status set_device(const C_Device device) {
  current = device->id;
  return C_SUCCESS;
}

C_Status get_device(const C_Device device) {
  device->id = current;
  return C_SUCCESS;
}

C_Status create_stream(const C_Device device, C_Stream* stream) {
  Guard guard(mutex);
  auto* made = new Stream;
  streams[device->id].push_back(made);
  *stream = reinterpret_cast<C_Stream>(made);
  return C_SUCCESS;
}

C_Status synchronize_stream(const C_Device, C_Stream stream) {
  Guard guard(mutex);
  run_all(of(stream));
  return C_SUCCESS;
}

C_Status destroy_stream(const C_Device device, C_Stream stream) {
  Guard guard(mutex);
  run_all(of(stream));
  auto& all = streams[device->id];
  for (auto it = all.begin(); it != all.end(); ++it) {
    if (*it == of(stream)) {
      all.erase(it);
      break;
    }
  }
  return C_SUCCESS;  // its memory stays, for events that name it
}

C_Status query_stream(const C_Device, C_Stream stream) {
  Guard guard(mutex);
  return of(stream)->waiting.empty() ? C_SUCCESS : C_FAILED;
}

C_Status add_callback(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  Guard guard(mutex);
  C_Device own = device;
  enqueue(of(stream), [=] {
    C_Status status = C_SUCCESS;
    callback(own, stream, data, &status);
  });
  return C_SUCCESS;
}

C_Status create_event(const C_Device, C_Event* event) {
  *event = reinterpret_cast<C_Event>(new Event);
  return C_SUCCESS;
}

C_Status destroy_event(const C_Device, C_Event event) {
  delete of(event);
  return C_SUCCESS;
}

C_Status record_event(const C_Device, C_Stream stream, C_Event event) {
  Guard guard(mutex);
  *of(event) = {of(stream), done[of(stream)] + of(stream)->waiting.size()};
  return C_SUCCESS;
}

void wait_for(const Event& event) {
  while (event.stream != nullptr && done[event.stream] < event.left && !event.stream->waiting.empty()) {
    run_first(event.stream);
  }
}

C_Status query_event(const C_Device, C_Event event) {
  Guard guard(mutex);
  const Event* it = of(event);
  return it->stream == nullptr || done[it->stream] >= it->left ? C_SUCCESS : C_FAILED;
}

C_Status synchronize_event(const C_Device, C_Event event) {
  Guard guard(mutex);
  wait_for(*of(event));
  return C_SUCCESS;
}

C_Status stream_wait_event(const C_Device, C_Stream stream, C_Event event) {
  Guard guard(mutex);
  const Event copy = *of(event);
  enqueue(of(stream), [copy] { wait_for(copy); });
  return C_SUCCESS;
}

C_Status synchronize_device(const C_Device device) {
  Guard guard(mutex);
  for (Stream* stream : streams[device->id]) run_all(stream);
  return C_SUCCESS;
}

C_Status allocate(const C_Device device, void** at, size_t size) {
  Guard guard(mutex);
  Arena& arena = arenas[device->id];
  if (!arena.map()) return C_FAILED;
  const size_t whole = (size / kPage + 1) * kPage;
  size_t offset = arena.used;
  if (auto it = arena.unused.find(whole); it != arena.unused.end()) {
    offset = it->second;
    arena.unused.erase(it);
  } else if (arena.used + whole > kArena) {
    return C_FAILED;
  } else {
    arena.used += whole;
  }
  arena.sizes[offset] = whole;
  arena.live += whole;
  std::memset(arena.bytes + offset, kFresh, size);
  *at = arena.shown + offset;
  return C_SUCCESS;
}

C_Status deallocate(const C_Device device, void* at, size_t) {
  Guard guard(mutex);
  synchronize_device(device);  // work that waits may still read it
  Arena& arena = arenas[device->id];
  const size_t offset = static_cast<char*>(at) - arena.shown;
  const size_t whole = arena.sizes[offset];
  madvise(arena.bytes + offset, whole, MADV_REMOVE);
  arena.unused.emplace(whole, offset);
  arena.sizes.erase(offset);
  arena.live -= whole;
  return C_SUCCESS;
}

C_Status allocate_host(const C_Device, void** at, size_t size) {
  *at = std::malloc(size);
  return *at != nullptr ? C_SUCCESS : C_FAILED;
}

C_Status deallocate_host(const C_Device, void* at, size_t) {
  std::free(at);
  return C_SUCCESS;
}

C_Status set_memory(const C_Device device, void* at, unsigned char value, size_t size) {
  Guard guard(mutex);
  synchronize_device(device);
  std::memset(on_device(device->id, at, size), value, size);
  return C_SUCCESS;
}

// Copies that the host waits for. As on a real device they wait for streams of their own device.
C_Status copy_in(const C_Device device, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  synchronize_device(device);
  std::memcpy(on_device(device->id, to, size), on_host(from), size);
  return C_SUCCESS;
}

C_Status copy_out(const C_Device device, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  synchronize_device(device);
  std::memcpy(on_host(to), on_device(device->id, from, size), size);
  return C_SUCCESS;
}

C_Status copy_within(const C_Device device, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  synchronize_device(device);
  std::memmove(on_device(device->id, to, size), on_device(device->id, from, size), size);
  return C_SUCCESS;
}

C_Status copy_across(const C_Device to_device, const C_Device from_device, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  synchronize_device(to_device);
  synchronize_device(from_device);
  std::memcpy(on_device(to_device->id, to, size), on_device(from_device->id, from, size), size);
  return C_SUCCESS;
}

// Copies that wait on a stream. The host's bytes are taken at once, as those of pageable memory are.
C_Status copy_in_later(const C_Device device, C_Stream stream, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  const char* first = static_cast<const char*>(on_host(from));
  std::vector<char> taken(first, first + size);
  char* at = on_device(device->id, to, size);
  enqueue(of(stream), [taken = std::move(taken), at] { std::memcpy(at, taken.data(), taken.size()); });
  return C_SUCCESS;
}

C_Status copy_out_later(const C_Device device, C_Stream stream, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  run_all(of(stream));
  std::memcpy(on_host(to), on_device(device->id, from, size), size);
  return C_SUCCESS;
}

C_Status copy_within_later(const C_Device device, C_Stream stream, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  char* target = on_device(device->id, to, size);
  const char* source = on_device(device->id, from, size);
  enqueue(of(stream), [=] { std::memmove(target, source, size); });
  return C_SUCCESS;
}

C_Status copy_across_later(
    const C_Device to_device, const C_Device from_device, C_Stream stream, void* to, const void* from, size_t size) {
  Guard guard(mutex);
  synchronize_device(from_device);
  char* target = on_device(to_device->id, to, size);
  const char* source = on_device(from_device->id, from, size);
  enqueue(of(stream), [=] { std::memcpy(target, source, size); });
  return C_SUCCESS;
}

C_Status count_devices(size_t* count) {
  *count = kDevices;
  return C_SUCCESS;
}

C_Status list_devices(size_t* numbers) {
  for (size_t i = 0; i < kDevices; ++i) numbers[i] = i;
  return C_SUCCESS;
}

C_Status memory_of(const C_Device device, size_t* total, size_t* unused) {
  Guard guard(mutex);
  *total = kArena;
  *unused = kArena - arenas[device->id].live;
  return C_SUCCESS;
}

C_Status least_chunk(const C_Device, size_t* size) {
  *size = 256;
  return C_SUCCESS;
}

C_Status largest_chunk(const C_Device, size_t* size) {
  *size = size_t{64} << 20;
  return C_SUCCESS;
}

C_Status largest_allocation(const C_Device, size_t* size) {
  *size = kArena / 2;
  return C_SUCCESS;
}

C_Status no_padding(const C_Device, size_t* size) {
  *size = 0;
  return C_SUCCESS;
}

C_Status first_allocation(const C_Device, size_t* size) {
  *size = size_t{1} << 20;
  return C_SUCCESS;
}

C_Status version(const C_Device, size_t* number) {
  *number = 1;
  return C_SUCCESS;
}

C_Status not_supported(const C_Device, bool* flag) {
  *flag = false;
  return C_SUCCESS;
}

char name[] = "fake_gpu";
char variant[] = "v1";

}  // namespace

// For kernels of this plugin: the bytes behind an address of the device, when all work before is done.
extern "C" __attribute__((visibility("default"))) void* fake_gpu_bytes(int device, void* at, size_t size) {
  Guard guard(mutex);
  for (Stream* stream : streams[device]) run_all(stream);
  return on_device(device, at, size);
}

extern "C" __attribute__((visibility("default"))) void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  params->device_type = name;
  params->sub_device_type = variant;
  C_DeviceInterface& it = *params->interface;
  std::memset(static_cast<void*>(&it), 0, sizeof it);
  it.size = sizeof it;
  it.initialize = succeed;
  it.finalize = succeed;
  it.init_device = init_device;
  it.set_device = set_device;
  it.get_device = get_device;
  it.deinit_device = ignore_device;
  it.create_stream = create_stream;
  it.destroy_stream = destroy_stream;
  it.query_stream = query_stream;
  it.stream_add_callback = add_callback;
  it.create_event = create_event;
  it.record_event = record_event;
  it.destroy_event = destroy_event;
  it.query_event = query_event;
  it.synchronize_device = synchronize_device;
  it.synchronize_stream = synchronize_stream;
  it.synchronize_event = synchronize_event;
  it.stream_wait_event = stream_wait_event;
  it.device_memory_allocate = allocate;
  it.device_memory_deallocate = deallocate;
  it.device_memory_set = set_memory;
  it.host_memory_allocate = allocate_host;
  it.host_memory_deallocate = deallocate_host;
  it.unified_memory_allocate = allocate_host;
  it.unified_memory_deallocate = deallocate_host;
  it.memory_copy_h2d = copy_in;
  it.memory_copy_d2h = copy_out;
  it.memory_copy_d2d = copy_within;
  it.memory_copy_p2p = copy_across;
  it.async_memory_copy_h2d = copy_in_later;
  it.async_memory_copy_d2h = copy_out_later;
  it.async_memory_copy_d2d = copy_within_later;
  it.async_memory_copy_p2p = copy_across_later;
  it.get_device_count = count_devices;
  it.get_device_list = list_devices;
  it.device_memory_stats = memory_of;
  it.device_min_chunk_size = least_chunk;
  it.device_max_chunk_size = largest_chunk;
  it.device_max_alloc_size = largest_allocation;
  it.device_extra_padding_size = no_padding;
  it.device_init_alloc_size = first_allocation;
  it.device_realloc_size = first_allocation;
  it.get_compute_capability = version;
  it.get_runtime_version = version;
  it.get_driver_version = version;
  it.is_float16_supported = not_supported;
  it.is_bfloat16_supported = not_supported;
}
