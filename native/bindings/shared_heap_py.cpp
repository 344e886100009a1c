// Shared arrays as Python sees them: bytes of NumPy, freed with their last view.
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings.hpp"
#include "shared_heap.hpp"

namespace distdbg {

namespace {

struct Owner {
  SharedHeap* heap;
  std::byte* array;
};

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>, nb::c_contig>;

Bytes make_array(std::uint64_t nbytes, std::uint64_t limit_nbytes, std::uint64_t tag) {
  auto owner = std::make_unique<Owner>();
  {
    const ReleaseGil release;
    owner->heap = &SharedHeap::make(limit_nbytes);
    owner->array = owner->heap->allocate(nbytes, tag);
  }
  std::byte* const data = owner->array;
  const nb::capsule base(owner.release(), [](void* pointer) noexcept {
    const std::unique_ptr<Owner> gone(static_cast<Owner*>(pointer));
    SharedHeap::free(gone->heap, gone->array);
  });
  return Bytes(data, {static_cast<std::size_t>(nbytes)}, base);
}

}  // namespace

void bind_shared_heap(nb::module_& module) {
  module.def("make_shared_array", &make_array, nb::arg("nbytes"), nb::arg("limit_nbytes"),
             nb::arg("tag"),
             nb::sig("def make_shared_array(nbytes: int, limit_nbytes: int, tag: int) "
                     "-> numpy.typing.NDArray[numpy.uint8]"),
             "Zeros that the ranks of this host share.");
  module.def(
      "shared_arrays",
      [] {
        const SharedHeap* heap = SharedHeap::here();
        const HeapFacts facts = heap != nullptr ? heap->facts() : HeapFacts{};
        return std::make_tuple(facts.count, facts.nbytes, facts.most_nbytes, facts.limit_nbytes,
                               facts.ops);
      },
      "How many there are, their bytes, the most so far, the limit, and ops in place.");
  module.def(
      "list_shared_arrays",
      [] {
        const SharedHeap* heap = SharedHeap::here();
        return heap != nullptr ? heap->arrays()
                               : std::vector<std::pair<std::uint64_t, std::uint64_t>>{};
      },
      "The tag and the bytes of each.");
  module.def(
      "is_shared",
      [](std::uintptr_t address, std::uint64_t nbytes) {
        const SharedHeap* heap = SharedHeap::here();
        return heap != nullptr &&
               heap->reaches(reinterpret_cast<const std::byte*>(address), nbytes);
      },
      nb::arg("address"), nb::arg("nbytes"), "Whether other ranks can reach that memory.");
}

}  // namespace distdbg
