// A device for tests with memory of its own.
#pragma once

// Adds the kind "discrete": cpu:reference, whose memory has no access rights for the host.
void add_discrete_device();
