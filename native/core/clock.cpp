#include "clock.hpp"
