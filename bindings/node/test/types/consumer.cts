// The same package by `require`.

import tidewire = require("tidewire");
import loadtest = require("tidewire/loadtest");

const server: tidewire.Server = new tidewire.Server({ noAuth: true });
server.on("*", (message: tidewire.Message) => message.reply(1));
loadtest.loadTest({ url: "http://a/" }, (error, result) => console.log(error, result?.rps));
