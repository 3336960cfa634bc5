# A small application of Rails: the channel ChatChannel answers what it is sent, and the room "closed" is not open.

require "securerandom"
require "rails"
require "action_controller/railtie"
require "action_cable/engine"
class App < Rails::Application
  config.load_defaults 6.1
  config.root = __dir__
  config.eager_load = false
  config.secret_key_base = SecureRandom.hex(32)
  config.logger = Logger.new($stderr)
  config.log_level = :warn
  config.action_cable.disable_request_forgery_protection = true
  config.action_cable.mount_path = "/cable"
end
module ApplicationCable
  class Connection < ActionCable::Connection::Base
  end
  class Channel < ActionCable::Channel::Base
  end
end
class ChatChannel < ApplicationCable::Channel
  def subscribed
    reject and return if params[:room] == "closed"
    stream_from "chat"
  end
  def echo(data)
    transmit(data)
  end
  def speak(data)
    ActionCable.server.broadcast("chat", data)
  end
end
ActionCable.server.config.cable = { "adapter" => "async" }
ActionCable.server.config.connection_class = -> { ApplicationCable::Connection }
App.initialize!
run App
