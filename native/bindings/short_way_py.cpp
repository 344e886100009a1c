// Carries out an op that Python has called on a watched group: recorded and compared here, then given to torch with
// our kernels switched off, so that it is not seen a second time. See distdbg/torch_bridge/tap/methods.py.
#include "noted_option.hpp"
#include "tap_ops.hpp"
#include "torch_keys.hpp"

namespace distdbg {

namespace {

// Attributes of the objects of distdbg/torch_bridge/tap and of torch's options, each name made once.
struct Names {
  PyObject* const checked = intern("checked");
  PyObject* const comm = intern("comm");
  PyObject* const foreseen = intern("foreseen");
  PyObject* const is_next = intern("is_next");
  PyObject* const launch = intern("launch");
  PyObject* const ops = intern("ops");
  PyObject* const recorder = intern("recorder");
};

const Names& names() {
  static const Names all;
  return all;
}

// The short way of one kind of op, all_reduce say: torch has a class of options for each kind.
class ShortWay {
 public:
  // `key`: the dispatch key of our kernels. `is_async`: the option that says whether the caller goes on before the op
  // has ended, or a function of the options. `timeout`: that option; `limit_ns(options)` reads it, below 0 for none.
  ShortWay(nb::object key, nb::object is_async, NotedOption& timeout, nb::object limit_ns)
      : keys_(std::move(key)),
        is_async_(std::move(is_async)),
        noted_async_(nb::isinstance<NotedOption>(is_async_) ? &nb::cast<NotedOption&>(is_async_)
                                                            : nullptr),
        timeout_object_(nb::find(timeout)),
        timeout_(timeout),
        limit_ns_(std::move(limit_ns)) {}

  // To be asked first: the sizes of tensors may be no numbers while torch traces.
  bool is_traced() const { return keys_.are_traced(); }

  // The Work; NotImplemented: nothing was started, and it takes the long way.
  nb::object go(nb::handle lane, nb::handle known, nb::handle options, nb::handle start,
                const nb::tuple& arguments) const {
    const Names& n = names();
    const bool is_async = noted_async_ != nullptr ? noted_async_->code_of(options) != 0
                                                  : nb::cast<bool>(is_async_(options));
    // Nobody has set one so far, as nobody does in most programs; to read it torch makes a timedelta.
    const std::int64_t limit_ns =
        timeout_.was_set() ? nb::cast<std::int64_t>(limit_ns_(options)) : -1;
    const nb::object checked = get(lane, n.checked);
    bool is_foreseen = false;
    if (!checked.is_none() &&
        nb::cast<int>(get(checked, tap_names().level)) == level_detail_of_check) {
      const nb::object comm = get(get(lane, n.recorder), n.comm);
      is_foreseen = nb::cast<bool>(get(get(lane, n.foreseen), n.is_next)(known, comm));
    }
    const nb::object ops_object = get(lane, n.ops);
    TappedOps& ops = nb::cast<TappedOps&>(ops_object);
    const nb::object given = get(lane, n.launch);
    const auto launch = [&]() -> nb::object {
      if (!ops.is_own_launch(given))  // of who shows ops to a profiler
        return given(lane, known, is_async, limit_ns, false, "", start, arguments, is_foreseen);
      return ops.launch(lane, known, is_async, limit_ns, false, {}, start, arguments, is_foreseen);
    };
    if (keys_.is_excluded())
      return launch();  // whoever has switched them off switches them on again
    const TorchKeys::Excluded below(keys_);
    return launch();
  }

 private:
  const TorchKeys keys_;
  const nb::object is_async_;
  NotedOption* const noted_async_;  // is_async_ where it is one, else nullptr
  const nb::object timeout_object_;
  const NotedOption& timeout_;
  const nb::object limit_ns_;
};

}  // namespace

void bind_short_way(nb::module_& module) {
  nb::class_<TorchKeys>(module, "TorchKeys", "What a thread passes by in torch's dispatcher.")
      .def(nb::init<nb::object>(), nb::arg("key"))
      .def_prop_ro("are_in_use", &TorchKeys::are_in_use)
      .def_prop_ro("are_traced", &TorchKeys::are_traced)
      .def_prop_ro("is_excluded", &TorchKeys::is_excluded)
      .def_prop_ro("is_direct", &TorchKeys::is_direct, "Whether torch is asked past its Python.");

  nb::class_<ShortWay>(module, "ShortWay", "Carries ops of one kind through torch.")
      .def(nb::init<nb::object, nb::object, NotedOption&, nb::object>(), nb::arg("key"),
           nb::arg("is_async"), nb::arg("timeout"), nb::arg("limit_ns"))
      .def("is_traced", &ShortWay::is_traced)
      .def("go", &ShortWay::go, nb::arg("lane"), nb::arg("known"), nb::arg("options"),
           nb::arg("start"), nb::arg("arguments"));
}

}  // namespace distdbg
