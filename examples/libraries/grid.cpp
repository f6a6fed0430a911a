// Stresses of material.so at many strains, on several threads, and the same on one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "material.hpp"

constexpr std::size_t components = 6;
constexpr std::size_t part = 1000;  // points of a call

// Calls the library for parts first, first + step, ... of all points.
void stresses(std::span<const double> strains, std::span<double> found, std::size_t first,
              std::size_t step) {
  const std::size_t points = strains.size() / components;
  for (std::size_t at = first * part; at < points; at += step * part) {
    const std::size_t n = std::min(part, points - at);
    material_library::material_stresses(static_cast<std::int64_t>(n),
                                        strains.subspan(components * at, components * n),
                                        found.subspan(components * at, components * n));
  }
}

int main() try {
  constexpr std::size_t points = 100'500, threads = 4;
  std::vector<double> strains(components * points);
  for (std::size_t i = 0; i < strains.size(); ++i)
    strains[i] = 0.01 * std::sin(0.37 * static_cast<double>(i));
  std::vector<double> on_one(strains.size()), on_many(strains.size());

  stresses(strains, on_one, 0, 1);
  {
    std::vector<std::jthread> workers;
    for (std::size_t k = 0; k < threads; ++k)
      workers.emplace_back([&, k] { stresses(strains, on_many, k, threads); });
  }

  const auto largest = std::ranges::max(on_one);
  std::printf("%zu points on %zu threads, largest stress %.1f MPa\n", points, threads, largest);
  if (!(largest > 1.0 && largest < 1e3)) throw std::runtime_error("stresses of another size");
  if (std::memcmp(on_one.data(), on_many.data(), sizeof(double) * on_one.size()) != 0)
    throw std::runtime_error("the threads give other stresses than one does");
  return 0;
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
