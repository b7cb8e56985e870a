package main

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

const patience = 60 * time.Second

// failure ends a case; runOne reports it.
func failure(format string, arguments ...any) {
	panic(fmt.Sprintf(format, arguments...))
}

func must(err error) {
	if err != nil {
		failure("%v", err)
	}
}

func equal(expected, actual any, what string) {
	if !reflect.DeepEqual(expected, actual) {
		failure("%s: expected %v, got %v", what, expected, actual)
	}
}

// sameElements: each as often as the other has it, in any order.
func sameElements(expected, actual []string, what string) {
	missing, extra := without(expected, actual), without(actual, expected)
	if len(missing)+len(extra) > 0 {
		failure("%s: expected %d messages, got %d, missing %v, unexpected %v",
			what, len(expected), len(actual), missing, extra)
	}
}

// without takes away one element for each of the others.
func without(elements, others []string) []string {
	left := slices.Sorted(slices.Values(elements))
	for _, other := range others {
		if index := slices.Index(left, other); index >= 0 {
			left = slices.Delete(left, index, index+1)
		}
	}
	return left
}

func eventually(expectation string, holds func() bool) {
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			failure("not within %v: %s", patience, expectation)
		}
	}
}
