package main

import (
	"fmt"
	"runtime"
)

type versionCmd struct{}

func (versionCmd) Run() error {
	fmt.Printf("kvasir %s (%s %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
