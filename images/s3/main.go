// An S3 server for trying things out and for tests: rclone's `serve s3` on a folder.
//
// Versions are pinned by go.mod and go.sum in the version's folder.
package main

import (
	"os"

	_ "github.com/rclone/rclone/backend/local"
	"github.com/rclone/rclone/cmd"
	_ "github.com/rclone/rclone/cmd/serve"
	_ "github.com/rclone/rclone/cmd/serve/s3"
)

func main() {
	// Only this of all that rclone can do.
	os.Args = append([]string{os.Args[0], "serve", "s3"}, os.Args[1:]...)
	cmd.Main()
}
