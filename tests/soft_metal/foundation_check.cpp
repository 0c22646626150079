// Compiled as Objective-C++ to see whether the compiler can: see soft_metal.cmake.
#import <Foundation/Foundation.h>

NSString* soft_metal_check() { return @"compiled"; }
