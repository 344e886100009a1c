#include "call_sites.hpp"

#include <dlfcn.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace distdbg {

namespace {

// Stacks are followed for so many frames, those of this package included.
constexpr int most_frames = 24;
constexpr std::size_t most_stacks = 16384;

// Public functions of CPython that its stable ABI leaves out; looked up, so that one wheel serves all
// versions. All have had these signatures since Python 3.11.
struct FrameApi {
  PyObject* (*back)(PyObject*);
  PyObject* (*code)(PyObject*);
  int (*last_instruction)(PyObject*);
  int (*line)(PyObject*);
};

const FrameApi& frame_api() {
  static const FrameApi api = [] {
    FrameApi found{};
    const auto look_up = [](auto& function, const char* name) {
      void* symbol = ::dlsym(RTLD_DEFAULT, name);
      std::memcpy(&function, &symbol, sizeof function);
    };
    look_up(found.back, "PyFrame_GetBack");
    look_up(found.code, "PyFrame_GetCode");
    look_up(found.last_instruction, "PyFrame_GetLasti");
    look_up(found.line, "PyFrame_GetLineNumber");
    return found;
  }();
  return api;
}

bool has_frame_api() {
  const FrameApi& api = frame_api();
  return api.back != nullptr && api.code != nullptr && api.last_instruction != nullptr &&
         api.line != nullptr;
}

// sys._getframe(skip): goes down without making objects of the frames on the way.
PyObject* frame_below(int skip) {
  static PyObject* const get_frame = [] {
    nb::object function = nb::module_::import_("sys").attr("_getframe");
    return function.release().ptr();
  }();
  static PyObject* const numbers[] = {PyLong_FromLong(0), PyLong_FromLong(1), PyLong_FromLong(2),
                                      PyLong_FromLong(3)};
  PyObject* frame = PyObject_CallFunctionObjArgs(get_frame, numbers[skip], nullptr);
  if (frame == nullptr) {  // a short stack
    PyErr_Clear();
    frame = PyObject_CallFunctionObjArgs(get_frame, numbers[0], nullptr);
    if (frame == nullptr) PyErr_Clear();
  }
  return frame;
}

std::string text_of(PyObject* object, const char* attribute) {
  PyObject* value = PyObject_GetAttrString(object, attribute);
  std::string text;
  if (value != nullptr) {
    PyObject* bytes = PyUnicode_AsEncodedString(value, "utf-8", "backslashreplace");
    char* data = nullptr;
    Py_ssize_t length = 0;
    if (bytes != nullptr && PyBytes_AsStringAndSize(bytes, &data, &length) == 0)
      text.assign(data, static_cast<std::size_t>(length));
    Py_XDECREF(bytes);
    Py_DECREF(value);
  }
  PyErr_Clear();
  return text;
}

}  // namespace

CallSites::CallSites(Recorder& recorder) : recorder_(recorder) {
  // Not __path__: of an editable install its first folder is that of the extension, without sources.
  const nb::object file = nb::module_::import_("distdbg").attr("__file__");
  const std::string path = nb::cast<std::string>(nb::str(file));
  package_ = path.substr(0, path.rfind('/') + 1);
}

CallSites::~CallSites() { forget(); }

void CallSites::forget() {
  stacks_.clear();
  for (PyObject* code : codes_) Py_XDECREF(code);
  codes_.clear();
}

// contextlib: what stands between a generator of ours and the `with` of the user.
bool CallSites::is_ours(PyObject* code, bool is_below_user) {
  const std::string file = text_of(code, "co_filename");
  if (file.starts_with(package_) || file.starts_with("<frozen ")) return true;
  if (!is_below_user) return false;
  const auto is_below = [&](const std::string& folder) { return file.starts_with(folder); };
  return file.ends_with("/contextlib.py") || std::ranges::any_of(skipped_, is_below);
}

void CallSites::skip_folder(std::string folder) {
  if (std::ranges::find(skipped_, folder) == skipped_.end()) skipped_.push_back(std::move(folder));
  forget();  // sites that were found without it
}

namespace {

std::uint64_t with_frame(std::uint64_t key, const void* code, std::uint64_t instruction) {
  return (std::rotl(key, 23) ^ reinterpret_cast<std::uintptr_t>(code)) * 0x9E37'79B9'7F4A'7C15 +
         instruction;
}

// As CPython's functions for frames say.
std::uint64_t key_of(PyObject* top) {
  const FrameApi& api = frame_api();
  std::uint64_t key = 0;
  PyObject* frame = Py_NewRef(top);
  for (int depth = 0; frame != nullptr && depth < most_frames; ++depth) {
    PyObject* code = api.code(frame);
    key = with_frame(key, code, static_cast<std::uint64_t>(api.last_instruction(frame)));
    Py_DECREF(code);  // the frame holds it
    PyObject* back = api.back(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return key;
}

// The same of frames as they lie in memory, for less than a tenth of the time.
std::uint64_t key_of(FrameWalk walk, int most) {
  std::uint64_t key = 0;
  for (int depth = 0; !walk.is_over() && depth < most; ++depth, walk.go_back())
    key = with_frame(key, walk.code(), reinterpret_cast<std::uintptr_t>(walk.instruction()));
  return key;
}

// Whether this stack reads the same by both ways: what the layout says is compared with what CPython says.
bool reads_as_cpython_says(const FrameLayout& layout) {
  const FrameApi& api = frame_api();
  PyObject* frame = frame_below(0);
  bool is_equal = frame != nullptr;
  FrameWalk walk(layout);
  while (is_equal && frame != nullptr) {
    PyObject* const code = api.code(frame);
    // Where the interpreter was entered from C there may be a frame that CPython shows nobody.
    while (!walk.is_over() && walk.code() != code) walk.go_back();
    is_equal = !walk.is_over() && walk.last_instruction() == api.last_instruction(frame);
    Py_DECREF(code);
    PyObject* const back = api.back(frame);
    Py_DECREF(frame);
    frame = back;
    if (is_equal) walk.go_back();
  }
  Py_XDECREF(frame);
  return is_equal;
}

// Nothing: frames have to be asked for.
const std::optional<FrameLayout>& frame_layout() {
  static const std::optional<FrameLayout> layout = [] {
    const std::optional<FrameLayout> known = FrameLayout::of_this_python();
    return known && reads_as_cpython_says(*known) ? known : std::nullopt;
  }();
  return layout;
}

}  // namespace

bool CallSites::reads_frames() { return has_frame_api() && frame_layout().has_value(); }

std::uint32_t CallSites::here(int skip) {
  if (!has_frame_api()) return 0;
  const std::optional<FrameLayout>& layout = frame_layout();
  const int most = most_frames + skip;
  std::uint64_t key = 0;
  if (layout) [[likely]] {
    key = key_of(FrameWalk(*layout), most);
    if (const auto found = stacks_.find(key); found != stacks_.end()) [[likely]]
      return found->second;
  }
  PyObject* const top = frame_below(skip);
  if (top == nullptr) return 0;
  if (!layout) key = key_of(top);
  const auto found = stacks_.find(key);
  const std::uint32_t site = found != stacks_.end() ? found->second : intern(top, key);
  Py_DECREF(top);
  if (layout && stacks_.contains(key)) hold_codes(FrameWalk(*layout), most);
  return site;
}

// Those of frames that CPython shows nobody as well: they are part of the key.
void CallSites::hold_codes(FrameWalk walk, int most) {
  for (int depth = 0; !walk.is_over() && depth < most; ++depth, walk.go_back())
    codes_.push_back(Py_XNewRef(walk.code()));
}

std::uint32_t CallSites::intern(PyObject* top, std::uint64_t key) {
  if (recorder_.is_forked()) return 0;
  const FrameApi& api = frame_api();
  if (stacks_.size() >= most_stacks) forget();
  struct Place {
    std::uint32_t file;
    std::uint32_t function;
    std::uint32_t line;
  };
  std::vector<Place> places;
  PyObject* frame = Py_NewRef(top);
  for (int depth = 0; frame != nullptr && depth < most_frames; ++depth) {
    PyObject* code = api.code(frame);
    if (!is_ours(code, places.empty())) {
      const int line = api.line(frame);
      places.push_back({recorder_.intern(text_of(code, "co_filename")),
                        recorder_.intern(text_of(code, "co_qualname")),
                        static_cast<std::uint32_t>(line > 0 ? line : 0)});
    }
    codes_.push_back(code);
    PyObject* back = api.back(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  std::uint32_t site = 0;
  for (auto place = places.rbegin(); place != places.rend(); ++place)
    site = recorder_.add_site(place->file, place->function, place->line, site);
  stacks_.emplace(key, site);
  return site;
}

}  // namespace distdbg
