// The kernels that Paddle calls by itself with tensors of the device: those of views and of their
// gradients, `full`, which clears gradients, and `add`, which sums them up. All others run on the CPU, for which Paddle copies
// their tensors to the host and back.

#include <algorithm>
#include <complex>
#include <utility>
#include <vector>

#include "paddle/phi/backends/all_context.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/kernel_registry.h"

extern "C" void* fake_gpu_bytes(int device, void* at, size_t size);

namespace fake_gpu {

using Sizes = std::vector<int64_t>;

// The offsets of the elements of a tensor from its first one: the lowest, and that after the highest.
// A negative stride goes down.
std::pair<int64_t, int64_t> span(const Sizes& dims, const Sizes& strides) {
  int64_t low = 0, high = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return {0, 0};
    (strides[i] < 0 ? low : high) += (dims[i] - 1) * strides[i];
  }
  return {low, high + 1};
}

Sizes dense(const Sizes& dims) {
  Sizes strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = step;
    step *= dims[i];
  }
  return strides;
}

Sizes of(const phi::DDim& dims) {
  Sizes row;
  for (int i = 0; i < dims.size(); ++i) row.push_back(dims[i]);
  return row;
}

template <typename T>
T* bytes(const phi::CustomContext& context, const void* at, const Sizes& dims, const Sizes& strides) {
  const auto [low, end] = span(dims, strides);
  if (low == end) return nullptr;
  T* first = const_cast<T*>(static_cast<const T*>(at)) + low;
  const int device = context.GetPlace().GetDeviceId();
  return static_cast<T*>(fake_gpu_bytes(device, first, (end - low) * sizeof(T))) - low;
}

// Copy elements one by one, each tensor by its own strides; both have as many, row by row.
template <typename T>
void copy(const T* from, const Sizes& from_dims, const Sizes& from_strides, T* to, const Sizes& to_dims,
          const Sizes& to_strides) {
  int64_t count = 1;
  for (int64_t n : from_dims) count *= n;
  auto place = [](int64_t k, const Sizes& dims, const Sizes& strides) {
    int64_t offset = 0;
    for (size_t i = dims.size(); i-- > 0; k /= dims[i]) offset += k % dims[i] * strides[i];
    return offset;
  };
  for (int64_t k = 0; k < count; ++k) to[place(k, to_dims, to_strides)] = from[place(k, from_dims, from_strides)];
}

template <typename T, typename Context>
void Contiguous(const Context& context, const phi::DenseTensor& x, phi::DenseTensor* out) {
  const Sizes dims = of(x.dims()), from = of(x.strides()), to = dense(dims);
  phi::DenseTensorMeta meta = x.meta();
  meta.strides = phi::DenseTensorMeta::calc_strides(x.dims());
  meta.offset = 0;
  out->set_meta(meta);
  T* result = context.template Alloc<T>(out);
  copy(bytes<T>(context, x.data(), dims, from), dims, from, bytes<T>(context, result, dims, to), dims, to);
}

template <typename T, typename Context>
void StridedCopy(const Context& context, const phi::DenseTensor& x, const Sizes& dims, const Sizes& strides,
                 int64_t offset, phi::DenseTensor* out) {
  phi::DenseTensorMeta meta = out->meta();
  meta.strides = common::make_ddim(strides);
  meta.dims = common::make_ddim(dims);
  meta.offset = offset;
  out->set_meta(meta);
  const Sizes from_dims = of(x.dims()), from = of(x.strides());
  copy(bytes<T>(context, x.data(), from_dims, from), from_dims, from, bytes<T>(context, out->data(), dims, strides),
       dims, strides);
}

template <typename T, typename Context>
void Fill(const Context& context, const phi::DenseTensor& x, const phi::Scalar& value, phi::DenseTensor* out) {
  const Sizes dims = of(out->dims()), strides = of(out->strides()), all_one(dims.size(), 0);
  const T number = value.to<T>();
  T* result = out->has_allocation() ? out->data<T>() : context.template Alloc<T>(out);
  copy(&number, dims, all_one, bytes<T>(context, result, dims, strides), dims, strides);
}

template <typename T, typename Context>
void Full(const Context& context, const phi::IntArray& shape, const phi::Scalar& value, phi::DataType,
          phi::DenseTensor* out) {
  out->Resize(common::make_ddim(shape.GetData()));
  const Sizes dims = of(out->dims()), all_one(dims.size(), 0);
  const T number = value.to<T>();
  T* result = context.template Alloc<T>(out);
  copy(&number, dims, all_one, bytes<T>(context, result, dims, dense(dims)), dims, dense(dims));
}

// The strides with which a tensor without gaps is read as one of more dimensions, or longer ones.
Sizes spread(const Sizes& dims, const Sizes& wanted) {
  const Sizes own = dense(dims);
  Sizes strides(wanted.size(), 0);
  const size_t first = wanted.size() - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) strides[first + i] = dims[i] == 1 ? 0 : own[i];
  return strides;
}

template <typename T, typename Context>
void Add(const Context& context, const phi::DenseTensor& x, const phi::DenseTensor& y, phi::DenseTensor* out) {
  const Sizes dims = of(out->dims()), of_x = spread(of(x.dims()), dims), of_y = spread(of(y.dims()), dims);
  int64_t count = 1;
  for (int64_t n : dims) count *= n;
  T* result = context.template Alloc<T>(out);
  std::vector<T> sums(count);
  if (count == 0) return;
  const T* left = bytes<T>(context, x.data(), dims, of_x);
  const T* right = bytes<T>(context, y.data(), dims, of_y);
  Sizes at(dims.size(), 0);
  int64_t i = 0, j = 0;
  for (int64_t k = 0; k < count; ++k) {
    sums[k] = static_cast<T>(left[i] + right[j]);
    for (size_t d = dims.size(); d-- > 0;) {
      i += of_x[d], j += of_y[d];
      if (++at[d] < dims[d]) break;
      i -= of_x[d] * dims[d], j -= of_y[d] * dims[d], at[d] = 0;
    }
  }
  std::copy(sums.begin(), sums.end(), bytes<T>(context, result, dims, dense(dims)));
}

}  // namespace fake_gpu

#define OF_ALL_TYPES                                                                                     \
  float, double, int8_t, uint8_t, int16_t, int32_t, int64_t, bool, phi::dtype::float16, phi::dtype::bfloat16, \
      phi::dtype::complex<float>, phi::dtype::complex<double>

PD_REGISTER_PLUGIN_KERNEL(contiguous, fake_gpu, ALL_LAYOUT, fake_gpu::Contiguous, OF_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(add, fake_gpu, ALL_LAYOUT, fake_gpu::Add, OF_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(full, fake_gpu, ALL_LAYOUT, fake_gpu::Full, OF_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(fill, fake_gpu, ALL_LAYOUT, fake_gpu::Fill, OF_ALL_TYPES) {}
PD_REGISTER_PLUGIN_KERNEL(strided_copy, fake_gpu, ALL_LAYOUT, fake_gpu::StridedCopy, OF_ALL_TYPES) {}
