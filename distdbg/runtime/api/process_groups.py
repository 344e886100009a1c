"""The classes of groups as programs name them, with all that their methods need."""

from distdbg.runtime.api import (
    subgroups as subgroups,
)  # makes split_group and merge_remote_group work
from distdbg.runtime.groups.group import GroupName as GroupName
from distdbg.runtime.groups.group import ProcessGroup as ProcessGroup
from distdbg.runtime.groups.group_argument import GroupMember as GroupMember
from distdbg.runtime.groups.group_argument import group as group
